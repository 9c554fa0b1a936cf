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
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app.http.bodies import wait_for_disconnect
from infra.engines import SPEECH_MODEL, transcripts, uploads
from infra.engines.errors import check_model
from infra.engines.transcripts import Form, Granularity, RecognitionResult
from infra.engines.workers import Workers
from topics.errors import BadRequest, Unavailable

_ENGLISH: Final = frozenset({"", "auto", "multi", "en", "english"})


class TranscriptionOptions(msgspec.Struct, frozen=True):
    """The fields that change the answer; `prompt` and `temperature` are accepted and change nothing."""

    response_format: Form = "json"
    timestamp_granularities: tuple[Granularity, ...] = ()


class Transcriptions:
    """The transcription endpoint."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    async def __call__(self, request: Request) -> Response:
        """Answer one request.

        Raises:
            AudioError: the recording cannot be decoded, or is too long.
            BadRequest: the form has no recording, an option that is not supported, or did not arrive in time.
            TooLarge: the form is too long.
            Unavailable: all slots are taken, the recogniser failed, or the client hung up.
            UnknownModel: it names another model.
        """
        with self._workers.admission.slot(), tempfile.TemporaryDirectory(prefix="earshot-engines-") as directory:
            recording = Path(directory) / "recording"
            async with uploads.form(request) as (form, file):
                asked = _options(form)
                await asyncio.to_thread(_save, file, recording)
            heard = await _transcribe_while_connected(request, self._workers, recording)
        return _reply(heard, asked)


def _options(form: FormData) -> TranscriptionOptions:
    texts = {name: value for name, value in form.multi_items() if isinstance(value, str)}
    check_model(texts.get("model"), SPEECH_MODEL)
    _check_supported(texts)
    answer = texts.get("response_format") or "json"
    granularities = form.getlist("timestamp_granularities[]") or form.getlist("timestamp_granularities")
    try:
        return msgspec.convert(
            {"response_format": answer, "timestamp_granularities": granularities}, TranscriptionOptions
        )
    except msgspec.ValidationError as error:
        raise BadRequest(str(error)) from None


def _check_supported(texts: Mapping[str, str]) -> None:
    if texts.get("language", "").lower().partition("-")[0] not in _ENGLISH:
        raise BadRequest(f"language: {SPEECH_MODEL} knows English alone, not {texts['language'][:20]!r}")
    if texts.get("stream", "").lower() == "true":
        raise BadRequest("stream: not supported")


def _save(file: BinaryIO, recording: Path) -> None:
    with recording.open("wb") as target:
        shutil.copyfileobj(file, target, 1024 * 1024)


async def _transcribe_while_connected(request: Request, workers: Workers, recording: Path) -> RecognitionResult:
    """Recognise a recording; when the client hangs up, stop and free the slot."""
    transcription = asyncio.create_task(workers.transcribe(recording))
    disconnect = asyncio.create_task(wait_for_disconnect(request.receive))
    try:
        await asyncio.wait((transcription, disconnect), return_when=asyncio.FIRST_COMPLETED)
        if not transcription.done():
            raise Unavailable("the client hung up")
        return transcription.result()
    finally:
        disconnect.cancel()
        transcription.cancel()
        await asyncio.gather(transcription, disconnect, return_exceptions=True)


def _reply(heard: RecognitionResult, asked: TranscriptionOptions) -> Response:
    if asked.response_format == "verbose_json":
        return JSONResponse(transcripts.verbose(heard, asked.timestamp_granularities))
    if asked.response_format == "json":
        return JSONResponse({"text": transcripts.text(heard.words)})
    media_type, form = transcripts.PLAIN[asked.response_format]
    return Response(form(heard), media_type=media_type)
