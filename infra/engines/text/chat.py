"""`POST /v1/chat/completions`: OpenAI's chat protocol, answered by rules for our own client's requests.

Protocol: https://platform.openai.com/docs/api-reference/chat/create The last user message is a `SceneRequest` as JSON
text. The answer is JSON too: `caption` for the task of that name, or the fields of `Insights`. Rules follow no
instructions, so other messages have no effect.
"""

import asyncio
import hashlib
import time
from typing import Any, Final

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from app.http.bodies import decode
from infra.engines import CHAT_MODEL, uploads
from infra.engines.admission import AdmissionLimit
from infra.engines.errors import check_model
from infra.engines.text import sentences
from infra.engines.text.scene import SceneRequest, build_scene
from topics.errors import BadRequest

MOST_BYTES: Final = 2 * 1024 * 1024
#: More than any model has. The time for a scene grows with the square of this number.
MOST_TAGS: Final = 1000
#: Requests in work; each takes milliseconds.
TOGETHER: Final = 64
RETRY_S: Final = 1
NEEDED: Final = (
    'the last user message must be JSON text {"task": "caption" or "audio_insights", "duration_seconds": number, '
    '"events": [{"tag", "start", "end", "peak"}], "transcript": [{"speaker", "start", "end", "text"}]}'
)


class ContentPart(msgspec.Struct, frozen=True):
    """A part of a message; parts without text are ignored."""

    type: str = ""
    text: str = ""


class ChatMessage(msgspec.Struct, frozen=True):
    """One message of the conversation."""

    role: str
    content: str | tuple[ContentPart, ...] | None = None


class ChatRequest(msgspec.Struct, frozen=True):
    """The request fields that this server reads."""

    messages: tuple[ChatMessage, ...]
    model: str | None = None
    stream: bool | None = None


_chat_decoder: Final = msgspec.json.Decoder(ChatRequest)
_scene_decoder: Final = msgspec.json.Decoder(SceneRequest)
_admission: Final = AdmissionLimit(TOGETHER, "text", RETRY_S)


async def completions(request: HttpRequest) -> Response:
    """Answer one request.

    Raises:
        BadRequest: the body is not a chat request, asks for a stream, or did not arrive in time; or its last user
            message is not a scene.
        UnknownModel: it names another model.
        TooLarge: the body is longer than MOST_BYTES.
        Unavailable: all slots are taken, or the client hung up.
    """
    with _admission.slot():
        return JSONResponse(await asyncio.to_thread(_completed, await uploads.body(request, MOST_BYTES)))


def _completed(body: bytes) -> dict[str, Any]:
    chat = decode(_chat_decoder, body)
    check_model(chat.model, CHAT_MODEL)
    if chat.stream:
        raise BadRequest("stream: not supported")
    content = answer(_scene_request(chat))
    return _completion(content, hashlib.blake2b(body, digest_size=12).hexdigest())


def answer(request: SceneRequest) -> str:
    """Return the assistant's answer as JSON text; equal requests get equal answers."""
    content = build_scene(request)
    reply = {"caption": sentences.caption(content)} if request.task == "caption" else sentences.insights(content)
    return msgspec.json.encode(reply).decode()


def _scene_request(chat: ChatRequest) -> SceneRequest:
    contents = [message.content for message in chat.messages if message.role == "user"]
    if not contents:
        raise BadRequest(f"messages: there is no user message; {NEEDED}")
    last = contents[-1] or ""
    text = last if isinstance(last, str) else "".join(piece.text for piece in last)
    try:
        scene = decode(_scene_decoder, text.encode("utf-8", "replace"))
    except BadRequest as error:
        raise BadRequest(f"messages: {error}; {NEEDED}") from None
    if (tags := len({event.tag for event in scene.events})) > MOST_TAGS:
        raise BadRequest(f"messages: the events have {tags} different tags, and at most {MOST_TAGS} are allowed")
    return scene


def _completion(content: str, name: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, "refusal": None}
    return {
        "id": f"chatcmpl-{name}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": CHAT_MODEL,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    }
