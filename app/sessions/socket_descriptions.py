"""The operations that open sockets, as the documents describe them."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from app.http.descriptions import Answer, Description, Key, Parameter, fault_of
from app.http.operation import Handler
from app.http.sockets import NotWebSocket
from app.sessions import cursors, socket_opening, socket_quota
from app.sessions.examples import ID, RAW
from app.sessions.requests import CreateSession
from app.sessions.socket_events import NONE, TYPES, WINDOW
from app.sessions.waiting import NO_SUCH_SESSION, SESSION, SESSION_KEY
from app.shared_descriptions import BROKEN
from topics.errors import Unavailable

Events = Annotated[str, Meta(pattern=r"^[a-z.,]*$")]
RequestId = Annotated[str, Meta(min_length=8, max_length=64)]
#: Fields of CreateSession that are JSON in a query.
_JSON: Final = ("metadata", "metadatas", "tags_sensitivity", "sound_rule", "sound_rules")
OPENING: Final = (
    Parameter(
        "mode",
        "query",
        Literal["send", "listen"],
        "`send`: audio in, events out. `listen`: events only, for any number of listeners.",
        default="send",
    ),
    Parameter(
        "after", "query", str, "Events after this cursor; `start` for all. By default only new ones.", example="start"
    ),
    Parameter(
        "events",
        "query",
        Events,
        f"Comma-separated types: {', '.join(TYPES)}; or `{NONE}`. A `session` with an error always comes.",
        default=WINDOW,
    ),
)
TEXT: Final = (
    "A WebSocket with the protocol `earshot.v1`. A browser sends the key as a second protocol: `earshot.key64.` and "
    "the key in base64url without padding. If the request fails, a client that offers `earshot.v1` is still upgraded, "
    "gets `error`, and is closed with 4000 plus the status; others get the status. The AsyncAPI document has the "
    "messages."
)
SWITCHED: Final = {101: Answer("Switched to WebSocket.")}
FAULTS: Final = (
    NotWebSocket(socket_opening.NO_UPGRADE),
    fault_of(cursors.parse, "after", ID, "yesterday"),
    socket_opening.ForeignOrigin(socket_opening.FOREIGN),
    Unavailable(socket_quota.FULL),
    *BROKEN,
)


def _creation() -> tuple[Parameter, ...]:
    fields = []
    for field in msgspec.structs.fields(CreateSession):
        kind: Any = str if field.name in _JSON else field.type
        text = field.type.__metadata__[0].description if hasattr(field.type, "__metadata__") else field.name
        if field.name in _JSON:
            text += " As JSON."
        required = field.name == "content_type"
        example = RAW if required else None
        if field.name == "type":
            kind, text = Literal["stream"], "Always `stream`."
        fields.append(Parameter(field.name, "query", kind, text, required=required, example=example))
    return tuple(fields)


SOCKET_OPERATIONS: Final[Mapping[Handler[Any], Description]] = {
    socket_opening.join_session: Description(
        summary="Join a session by socket",
        text=TEXT,
        key=SESSION_KEY,
        parameters=(SESSION, *OPENING),
        answers=SWITCHED,
        faults=(*FAULTS, NO_SUCH_SESSION),
    ),
    socket_opening.open_session: Description(
        summary="Open a session and join it by socket",
        text=f"The fields of session creation are parameters. {TEXT}",
        key=Key("projectKey"),
        parameters=(
            *_creation(),
            Parameter(
                "request_id",
                "query",
                RequestId,
                "For an hour, the same value with the same key joins the same session.",
            ),
            *OPENING,
        ),
        answers=SWITCHED,
        faults=FAULTS,
    ),
}
