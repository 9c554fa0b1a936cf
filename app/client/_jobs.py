"""What is asked of the service about jobs, as flows (`app.client._flows`)."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec

from app.client import _media
from app.client._errors import BY_JOB_STATUS, NoJob
from app.client._flows import Call, Flow, Upload, ask, sendable
from app.client._json import decoded
from app.client._results import Captions, Job, Options

OCTETS = "application/octet-stream"


class Recording(msgspec.Struct, frozen=True):
    """A recording that is open: read from its beginning, again for each try."""

    file: BinaryIO
    name: str
    content_type: str


@contextmanager
def opened(audio: Path | BinaryIO, name: str | None, content_type: str | None) -> Iterator[Recording]:
    """Open what is to be sent; a file that was given open stays open.

    Raises:
        OSError: there is no such file.
    """
    if isinstance(audio, Path):
        with audio.open("rb") as file:
            yield _recording(file, name or audio.name, content_type)
    else:
        yield _recording(audio, name or Path(str(getattr(audio, "name", "audio"))).name, content_type)


def _recording(file: BinaryIO, name: str, content_type: str | None) -> Recording:
    if content_type is None:
        file.seek(0)
        content_type = _media.content_type(file.read(_media.HEAD))
    return Recording(file, sendable(name), content_type or OCTETS)


def analyze(key: str, recording: Recording, options: Options, idempotency_key: str | None) -> Flow[Job]:
    """Upload a recording; its Idempotency-Key makes it harmless to try again after a lost answer."""
    headers = {"X-Api-Key": key, "Idempotency-Key": idempotency_key or secrets.token_hex(16)}
    fields = {"options": msgspec.json.encode(options).decode()}
    upload = Upload(fields, "audio", recording.name, recording.content_type, recording.file)
    call = Call("POST", "/api/v1/analyze_file", headers=headers, upload=upload)
    answer = yield from ask(call, kinds=BY_JOB_STATUS)
    return decoded(answer.body, Job)


def read(key: str, job: str) -> Flow[Job]:
    """Read a job as it is."""
    answer = yield from ask(_call("GET", key, job), kinds=BY_JOB_STATUS)
    return decoded(answer.body, Job)


def delete(key: str, job: str) -> Flow[None]:
    """Delete a job; one that is gone already counts as deleted, as it is after an answer that was lost."""
    try:
        yield from ask(_call("DELETE", key, job), kinds=BY_JOB_STATUS)
    except NoJob:
        return


def captions(key: str, job: str, form: Captions) -> Flow[str]:
    """Read the captions of a job that has ended."""
    answer = yield from ask(_call("GET", key, f"{job}/captions.{form}"), kinds=BY_JOB_STATUS)
    return answer.body.decode(errors="replace")


def _call(method: str, key: str, path: str) -> Call:
    return Call(method, f"/api/v1/jobs/{path}", headers={"X-Api-Key": key})
