"""`POST /v1/audio/transcriptions`: OpenAI's transcription protocol over the demonstration recogniser.

Protocol: https://platform.openai.com/docs/api-reference/audio/createTranscription
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive

from app.bodies import hung_up
from infra.engines import SPEECH_MODEL, transcripts
from infra.engines.errors import check_model
from infra.engines.transcripts import Form, Granularity, Heard
from infra.engines.workers import Workers
from topics.errors import BadRequest, TooLarge, Unavailable

#: Ten minutes of stereo at 48 kHz and 16 bit fit.
MOST_BYTES: Final = 128 * 1024 * 1024
UPLOAD_S: Final = 60.0
_ENGLISH: Final = frozenset({"", "auto", "multi", "en", "english"})


class Asked(msgspec.Struct, frozen=True):
    """The fields that change an answer; prompt and temperature are accepted and change nothing."""

    response_format: Form = "json"
    timestamp_granularities: tuple[Granularity, ...] = ()


class Transcriptions:
    """The endpoint."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    async def __call__(self, request: Request) -> Response:
        """Answer one request.

        Raises:
            EarshotError: named by `infra.engines.errors`.
        """
        length = request.headers.get("content-length", "")
        if length.isdigit() and int(length) > MOST_BYTES:
            raise TooLarge(f"the request is longer than {MOST_BYTES} bytes")
        async with self._workers.place():
            request = Request(request.scope, _bounded(request.receive))
            with tempfile.TemporaryDirectory(prefix="earshot-engines-") as directory:
                recording = Path(directory) / "recording"
                asked = await _received(request, recording)
                heard = await _unless_gone(request, self._workers, recording)
        return _reply(heard, asked)


def _bounded(receive: Receive) -> Receive:
    """A body without Content-Length ends with an error where it becomes too long."""
    received = 0

    async def bounded() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > MOST_BYTES:
            raise MultiPartException(f"the request is longer than {MOST_BYTES} bytes")
        return message

    return bounded


async def _received(request: Request, recording: Path) -> Asked:
    """Read the form and leave its file at `recording`."""
    try:
        async with asyncio.timeout(UPLOAD_S), request.form(max_files=1, max_fields=32) as form:
            asked = _asked(form)
            upload = form.get("file")
            if not isinstance(upload, UploadFile):
                raise BadRequest("file: required, a recording as multipart/form-data")
            await asyncio.to_thread(_keep, upload.file, recording)
    except ClientDisconnect:
        raise BadRequest("the client hung up") from None
    except TimeoutError:
        raise BadRequest(f"the request did not arrive within {UPLOAD_S:g} s") from None
    return asked


def _asked(form: FormData) -> Asked:
    texts = {name: value for name, value in form.multi_items() if isinstance(value, str)}
    check_model(texts.get("model"), SPEECH_MODEL)
    _check(texts)
    answer = texts.get("response_format") or "json"
    granularities = form.getlist("timestamp_granularities[]") or form.getlist("timestamp_granularities")
    try:
        return msgspec.convert({"response_format": answer, "timestamp_granularities": granularities}, Asked)
    except msgspec.ValidationError as error:
        raise BadRequest(str(error)) from None


def _check(texts: Mapping[str, str]) -> None:
    if texts.get("language", "").lower().partition("-")[0] not in _ENGLISH:
        raise BadRequest(f"language: {SPEECH_MODEL} knows English alone, not {texts['language'][:20]!r}")
    if texts.get("stream", "").lower() == "true":
        raise BadRequest("stream: not supported")


def _keep(file: BinaryIO, recording: Path) -> None:
    with recording.open("wb") as kept:
        shutil.copyfileobj(file, kept, 1024 * 1024)


async def _unless_gone(request: Request, workers: Workers, recording: Path) -> Heard:
    """Recognise, but for nobody: a client that hangs up, as one does whose time is over, frees its place."""
    hearing = asyncio.create_task(workers.hear(recording))
    gone = asyncio.create_task(hung_up(request.receive))
    try:
        await asyncio.wait((hearing, gone), return_when=asyncio.FIRST_COMPLETED)
        if not hearing.done():
            raise Unavailable("the client hung up")
        return hearing.result()
    finally:
        gone.cancel()
        hearing.cancel()
        await asyncio.gather(hearing, gone, return_exceptions=True)


def _reply(heard: Heard, asked: Asked) -> Response:
    if asked.response_format == "verbose_json":
        return JSONResponse(transcripts.verbose(heard, asked.timestamp_granularities))
    if asked.response_format == "json":
        return JSONResponse({"text": transcripts.text(heard.words)})
    media_type, form = transcripts.PLAIN[asked.response_format]
    return Response(form(heard), media_type=media_type)
