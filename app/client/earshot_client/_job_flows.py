"""Flows of requests about jobs."""

import secrets
from base64 import b64encode
from collections.abc import Mapping
from typing import get_args

import msgspec

from ._calls import Call, Flow, ask, segment
from ._errors import JOB_ERRORS, JobNotFound
from ._job_values import AudioLink, CaptionForm, Job, JobScores
from ._json import done, fetch
from ._list_values import JobPage
from ._service_values import JobOptions
from ._uploads import Audio, opened, upload


def analyze(
    key: str,
    audio: Audio,
    options: JobOptions,
    name: str | None,
    content_type: str | None,
    idempotency_key: str | None,
) -> Flow[Job]:
    """Upload a recording. Its Idempotency-Key makes a retry after a lost answer harmless."""
    headers = {"X-Api-Key": key, "Idempotency-Key": idempotency_key or secrets.token_hex(16)}
    fields = {"options": msgspec.json.encode(options).decode()}
    with (yield from opened(audio)) as file:
        body = yield from upload(fields, "audio", file, name, content_type)
        return (yield from fetch(Call("POST", "/api/v1/analyze_file", headers=headers, upload=body), Job, JOB_ERRORS))


def analyze_samples(
    key: str, audio: bytes, samplerate: int, options: JobOptions, content_type: str | None, idempotency_key: str | None
) -> Flow[Job]:
    """Send a recording as JSON. Its Idempotency-Key makes a retry after a lost answer harmless."""
    headers = {"X-Api-Key": key, "Idempotency-Key": idempotency_key or secrets.token_hex(16)}
    body: dict[str, object] = {"samplerate": samplerate, "audio": b64encode(audio).decode(), "options": options}
    if content_type is not None:
        body["content_type"] = content_type
    call = Call("POST", "/api/v1/analyze", msgspec.json.encode(body), {"Content-Type": "application/json", **headers})
    return fetch(call, Job, JOB_ERRORS)


def listing(key: str, query: Mapping[str, str]) -> Flow[JobPage]:
    call = Call("GET", "/api/v1/jobs", headers={"X-Api-Key": key}, query=query)
    return fetch(call, JobPage, JOB_ERRORS)


def job(key: str, job_id: str) -> Flow[Job]:
    return fetch(_call("GET", key, job_id), Job, JOB_ERRORS)


def scores(key: str, job_id: str) -> Flow[JobScores]:
    return fetch(_call("GET", key, job_id, "/scores"), JobScores, JOB_ERRORS)


def audio_link(key: str, job_id: str) -> Flow[AudioLink]:
    return fetch(_call("POST", key, job_id, "/audio"), AudioLink, JOB_ERRORS)


def delete(key: str, job_id: str) -> Flow[None]:
    """Delete a job. A missing job counts as deleted: the answer to an earlier try may have been lost."""
    try:
        yield from done(_call("DELETE", key, job_id), JOB_ERRORS)
    except JobNotFound:
        return


def captions(key: str, job_id: str, form: CaptionForm) -> Flow[str]:
    """Read the captions of a job that has ended."""
    if form not in get_args(CaptionForm):
        raise ValueError(f"captions are srt or vtt, not {form!r}")
    answer = yield from ask(_call("GET", key, job_id, f"/captions.{form}"), errors=JOB_ERRORS)
    return answer.body.decode(errors="replace")


def _call(method: str, key: str, job_id: str, end: str = "") -> Call:
    return Call(method, f"/api/v1/jobs/{segment(job_id)}{end}", headers={"X-Api-Key": key})
