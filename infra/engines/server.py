"""The engine server as an ASGI application: one route for each public protocol, and its errors."""

from functools import partial
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from infra.engines import CHAT_MODEL, SMALL_MODEL, SPEAKER_MODEL, SPEECH_MODEL, errors
from infra.engines.draining import DrainMiddleware
from infra.engines.lock import HEALTH, LockMiddleware
from infra.engines.speech import transcription
from infra.engines.speech.speech_models import SpeechModels
from infra.engines.text import chat
from infra.engines.voices.embeddings import Embeddings
from topics.errors import EarshotError

MODELS: Final = {
    SPEECH_MODEL: "Speech in 99 languages, and its translation into English.",
    SMALL_MODEL: "Speech in English, for small machines.",
    SPEAKER_MODEL: "Voices as vectors of unit length.",
    CHAT_MODEL: "Captions and insights by rules over sound events and a transcript.",
}


def create_app(speech: SpeechModels, key: str | None = None) -> Starlette:
    """Return the engine server as an ASGI application; the caller closes `speech` afterwards.

    With a `key`, everything except `/healthz` requires `Authorization: Bearer KEY`. Without one, web pages are refused.
    """
    embeddings = Embeddings()
    routes = [
        Route("/v1/audio/transcriptions", partial(transcription.answer, speech, "transcribe"), methods=["POST"]),
        Route("/v1/audio/translations", partial(transcription.answer, speech, "translate"), methods=["POST"]),
        Route("/v1/audio/speech/embedding", embeddings.answer_form, methods=["POST"]),
        Route("/v1/embeddings", embeddings.answer_json, methods=["POST"]),
        Route("/v1/chat/completions", chat.completions, methods=["POST"]),
        Route("/v1/models", models),
        Route(HEALTH, healthy),
    ]
    handlers = {
        EarshotError: errors.earshot_error,
        HTTPException: errors.http_exception,
        Exception: errors.unexpected_error,
    }
    middleware = [Middleware(DrainMiddleware), Middleware(LockMiddleware, key=key)]
    return Starlette(routes=routes, exception_handlers=handlers, middleware=middleware)


async def models(request: Request) -> Response:
    rows = [
        {"id": name, "object": "model", "created": 0, "owned_by": "earshot", "description": text}
        for name, text in MODELS.items()
    ]
    return JSONResponse({"object": "list", "data": rows})


async def healthy(request: Request) -> Response:
    return JSONResponse({"status": "ok"})
