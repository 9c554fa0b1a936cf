"""`POST /v1/audio/transcriptions` and `/v1/audio/translations`: OpenAI's protocols over this server's recognisers.

Protocols: https://platform.openai.com/docs/api-reference/audio/createTranscription and `/createTranslation`, which
always answers in English. The field `likely_language` is ours: the language of the recording that the file is cut from.
"""

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app.http.bodies import while_connected
from app.http.errors import ClientGone
from infra.engines import uploads
from infra.engines.speech import transcripts
from infra.engines.speech.speech_models import SpeechModels
from infra.engines.speech.transcripts import Form, Granularity, RecognitionResult
from infra.engines.speech.worker_protocol import RecognitionRequest, Task
from topics import languages
from topics.errors import BadRequest, Unavailable

#: Values that ask the model to detect the language.
_ANY: Final = frozenset({"", "auto", "multi"})
#: Characters of a prompt that are used: the last ones.
PROMPT_CHARACTERS: Final = 2000


class TranscriptionOptions(msgspec.Struct, frozen=True):
    """The fields that change the form of the answer."""

    response_format: Form = "json"
    timestamp_granularities: tuple[Granularity, ...] = ()


async def answer(models: SpeechModels, task: Task, request: Request) -> Response:
    """Answer one request for a task.

    Raises:
        AudioError: the recording cannot be decoded, or is too long.
        EngineError: the model cannot be loaded.
        BadRequest: the form has no recording or an unsupported option, or did not arrive in time.
        TooLarge: the form is too long.
        Unavailable: all slots are taken, the recogniser failed, or the client hung up.
        UnknownModel: it names another model.
    """
    with models.admission.slot(), tempfile.TemporaryDirectory(prefix="earshot-engines-") as directory:
        recording = Path(directory) / "recording"
        async with uploads.form(request) as (form, file):
            asked = _options(form)
            texts = {name: value for name, value in form.multi_items() if isinstance(value, str)}
            await asyncio.to_thread(_save, file, recording)
        wanted = RecognitionRequest(
            0,
            str(recording),
            language=_language(texts, "language"),
            likely=_language(texts, "likely_language"),
            task=task,
            prompt=texts.get("prompt", "")[-PROMPT_CHARACTERS:],
        )
        model = texts.get("model") or models.default
        try:
            heard = await while_connected(request.receive, models.transcribe(model, wanted))
        except ClientGone:
            raise Unavailable("the client hung up") from None
    return _reply(heard, asked, task)


def _options(form: FormData) -> TranscriptionOptions:
    if str(form.get("stream", "")).lower() == "true":
        raise BadRequest("stream: not supported")
    response_format = form.get("response_format") or "json"
    granularities = form.getlist("timestamp_granularities[]") or form.getlist("timestamp_granularities")
    try:
        fields = {"response_format": response_format, "timestamp_granularities": granularities}
        return msgspec.convert(fields, TranscriptionOptions)
    except msgspec.ValidationError as error:
        raise BadRequest(str(error)) from None


def _language(texts: dict[str, str], field: str) -> str | None:
    text = texts.get(field, "")
    if text.lower() in _ANY:
        return None
    if (code := languages.code(text)) is None:
        raise BadRequest(f"{field}: {text[:20]!r} is not a known language")
    return code


def _save(file: BinaryIO, recording: Path) -> None:
    with recording.open("wb") as target:
        shutil.copyfileobj(file, target, 1024 * 1024)


def _reply(heard: RecognitionResult, asked: TranscriptionOptions, task: Task) -> Response:
    if asked.response_format == "verbose_json":
        return JSONResponse(transcripts.verbose(heard, asked.timestamp_granularities, task))
    if asked.response_format == "json":
        return JSONResponse({"text": transcripts.text(heard.words)})
    media_type, form = transcripts.PLAIN[asked.response_format]
    return Response(form(heard), media_type=media_type)
