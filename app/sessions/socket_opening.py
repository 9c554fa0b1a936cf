"""The operations that open a socket: one joins a session, the other creates a session first."""

import hmac
import time
import zlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from app.cluster.takeovers import FORWARDED, host
from app.http.bodies import decode
from app.http.call import Call
from app.http.descriptions import Answer, Fault, Key, Parameter, fault_of, operation
from app.http.queries import query_parameters
from app.http.replies import Reply
from app.http.sockets import (
    SWITCHED,
    NotWebSocket,
    Passage,
    Upgrade,
    close_code,
    key_in_protocols,
    offered,
    reason_bytes,
    upgrade_of,
)
from app.http.turns import holder_of, stranger
from app.identity.authentication import bearer, own_header
from app.identity.keys import KeyHeader
from app.sessions.commands import opened_record
from app.sessions.cursors import Place, parse
from app.sessions.examples import ID
from app.sessions.requests import CREATE, CreateSession, creation_parameters
from app.sessions.session_context import SessionContext
from app.sessions.socket import Socket
from app.sessions.socket_events import NONE, TYPES, WINDOW, wanted_types
from app.sessions.socket_messages import error_text, key_failure, retry_fields
from app.sessions.socket_quota import FULL, KeyWatch, SocketQuota
from app.sessions.waiting import NO_SUCH_SESSION, SESSION, SESSION_KEY, allowed_session
from app.shared_descriptions import BROKEN
from topics.errors import BadRequest, Closed, EarshotError, Unavailable
from topics.keys import ID_BITS, drawn_id, is_id
from topics.ports.directory import Principal
from topics.sessions.records import Deleted
from topics.turns import Holder

PROTOCOL: Final = "earshot.v1"
KEY_PROTOCOL: Final = "earshot.key64."
#: Within an hour, the same `request_id` of a project means the same session.
REQUEST_SECONDS: Final = 3600
FOREIGN: Final = "pages of this origin may not open sockets here"
NO_UPGRADE: Final = "this path is a WebSocket: send Upgrade: websocket"
#: Longest frame read after a refusal; only the client's close is expected.
DEAF_BYTES: Final = 1024
#: Finds the session and begins, or returns the answer of the node that owns it.
Find = Callable[[Upgrade], Awaitable[Reply]]


class ForeignOrigin(Closed):
    """A page of a disallowed origin asks for a socket."""


class SocketContext(msgspec.Struct, frozen=True):
    #: Its `project_keys` find a project's key wherever a socket may carry it.
    sessions: SessionContext
    sockets: SocketQuota
    key_watch: KeyWatch


class Wish(msgspec.Struct, frozen=True):
    """The client's choices, beside the session."""

    sends: bool
    place: Place | None
    wanted: frozenset[str]


def socket_key(call: Call, kind: KeyHeader) -> str:
    """Return the key of a request for a socket, from its header, as a bearer, or from the protocols; or ""."""
    return own_header(call, kind) or bearer(call) or key_in_protocols(call.scope, KEY_PROTOCOL)


Events = Annotated[str, Meta(pattern=r"^[a-z.,]*$")]
RequestId = Annotated[str, Meta(min_length=8, max_length=64)]
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


def _faults() -> tuple[Fault, ...]:
    return (
        NotWebSocket(NO_UPGRADE),
        fault_of(parse, "after", ID, "yesterday"),
        ForeignOrigin(FOREIGN),
        Unavailable(FULL),
        *BROKEN,
    )


@operation(
    "GET /audio_sessions/{session_id}/socket",
    key=SESSION_KEY,
    parameters=(SESSION, *OPENING),
    answers={101: Answer("Switched to WebSocket.")},
    faults=lambda: (*_faults(), NO_SUCH_SESSION),
)
async def join_session(call: Call, context: SocketContext) -> Reply:
    """Join a session by socket.

    {TEXT}
    """
    return await _opened(call, context, partial(_join, call, context))


@operation(
    "GET /api/v1/socket",
    key=Key("projectKey"),
    parameters=(
        *creation_parameters(),
        Parameter(
            "request_id", "query", RequestId, "For an hour, the same value with the same key joins the same session."
        ),
        *OPENING,
    ),
    answers={101: Answer("Switched to WebSocket.")},
    faults=_faults,
)
async def open_session(call: Call, context: SocketContext) -> Reply:
    """Open a session and join it by socket.

    The fields of session creation are parameters. {TEXT}
    """
    return await _opened(call, context, partial(_make, call, context))


async def _opened(call: Call, context: SocketContext, find: Find) -> Reply:
    upgrade = upgrade_of(call.scope)
    if upgrade is None:
        raise NotWebSocket(NO_UPGRADE)
    try:
        _check_origin(call, context.sessions.options.cors_origins)
        return await find(upgrade)
    except EarshotError as error:
        if PROTOCOL not in offered(call.scope):
            raise
        _refuse(upgrade, error, stranger(call.address))
        return SWITCHED


def _refuse(upgrade: Upgrade, error: EarshotError, holder: Holder) -> None:
    """Upgrade and close, because programs in browsers cannot read the status of a failed upgrade."""
    status, text = error.status, str(error)
    wire = upgrade.accept(PROTOCOL, Deaf(holder), DEAF_BYTES)
    wire.close(close_code(status), reason_bytes(text), [error_text(status, text, retry_fields(error))])


class Deaf:
    """Ignores the messages of a refused socket."""

    def __init__(self, holder: Holder) -> None:
        self.holder = holder

    def received(self, data: bytes) -> None: ...

    def received_text(self, data: bytes) -> None: ...

    def holds(self, size: int) -> None: ...

    def writable(self) -> None: ...

    def closing_error(self, code: int, text: str) -> bytes:
        return error_text(400, text)

    def leave(self) -> None: ...

    def ended(self) -> None: ...


async def _join(call: Call, context: SocketContext, upgrade: Upgrade) -> Reply:
    session = call.path("session_id")
    if is_id(session) and (reply := await _passed_on(call, context, upgrade, session)) is not None:
        return reply
    key, holder = await _allowed(call, context)
    wish = _wish(call, session)
    await _start(call, context, upgrade, holder, wish, key)
    return SWITCHED


async def _make(call: Call, context: SocketContext, upgrade: Upgrade) -> Reply:
    principal = await context.sessions.project_keys.authenticate(call)
    query = query_parameters(call.scope, exact=True)
    body = _creation(query)
    request_id = query.get("request_id")
    sessions = context.sessions.sessions
    known = False
    if request_id is None:
        if (other := host(call, sessions)) is not None:
            return await _relayed(call, context, upgrade, other)
        session = sessions.new_id()
    else:
        if not 8 <= len(request_id) <= 64:
            raise BadRequest("request_id: has 8 to 64 characters")
        sent = context.sessions.project_keys.key(call)
        now, before = (_named_session(context, principal, sent, request_id, hours) for hours in (0, 1))
        session = now
        if (reply := await _passed_on(call, context, upgrade, session)) is not None:
            return reply
        known = sessions.view(session) is not None
        earlier = None if known else sessions.view(before)
        if earlier is not None and earlier.opened.at > (time.time() - REQUEST_SECONDS) * 1000:
            session, known = before, True
    wish, key = _wish(call, session), context.sessions.project_keys.key(call)
    start = partial(_start, call, context, upgrade, holder_of(principal, session), wish, key)
    if known:
        await start()
        return SWITCHED
    upgrade.check()
    sessions.admit(principal.project)
    opened = opened_record(context.sessions, principal, body)
    opened = msgspec.structs.replace(opened, derived=request_id is not None)
    greeted = False
    try:
        verdict = await sessions.submit(session, opened)
        if verdict.status not in (200, 409):
            raise Unavailable(verdict.error or "the session cannot be opened now")
        greeted = await start()
    finally:
        if not greeted and request_id is None:
            # Nobody has its id. If the log has no room for this, the session expires.
            with suppress(EarshotError):
                sessions.send(session, Deleted(next(context.sessions.commands)), lambda _: None)
    return SWITCHED


async def _start(call: Call, context: SocketContext, upgrade: Upgrade, holder: Holder, wish: Wish, key: str) -> bool:
    """Upgrade and open the socket; return whether the client was sent `hello`, and with it the session's id."""
    socket = Socket(context.sessions, context.sockets, call.room, holder, wish.sends)
    protocol = PROTOCOL if PROTOCOL in offered(call.scope) else None
    socket.wire = upgrade.accept(protocol, socket, context.sessions.chunk_limit)
    if key and call.ended is not None:
        socket.watch_key(context.key_watch, key, call.ended)
    await socket.open(wish.place, wish.wanted, upgrade.idle_seconds)
    return socket.greeted


async def _allowed(call: Call, context: SocketContext) -> tuple[str, Holder]:
    """Return the key that joins a session, "" if none is needed, and who holds the session.

    Raises:
        Unauthorized, DirectoryDown: a key is required, and is invalid or cannot be verified.
        NotFound: there is no such session, or another project has it.
    """
    session, view = await allowed_session(call, context.sessions)
    holder = holder_of(view.opened, session)
    keys = context.sessions.project_keys
    key = keys.key(call)
    if key and not context.sessions.options.sessions_need_key:
        try:
            await keys.authenticate(call)
        except EarshotError:
            return "", holder  # The id is enough.
    return key, holder


async def _passed_on(call: Call, context: SocketContext, upgrade: Upgrade, session: str) -> Reply | None:
    """Forward to the node that owns a session, if it is another one."""
    relay = partial(_relayed, call, context, upgrade)
    return await context.sessions.takeovers.ask(call, context.sessions.sessions, session, relay)


async def _relayed(call: Call, context: SocketContext, upgrade: Upgrade, owner: str) -> Reply:
    passed = await upgrade.pass_on(owner, [(FORWARDED, context.sessions.sessions.plan())])
    if passed is None:
        return SWITCHED
    if isinstance(passed, Reply):
        return passed
    if key := context.sessions.project_keys.key(call):
        # The owner notices late if the key is rotated on this node.
        context.sessions.project_keys.watch(call)
        assert call.ended is not None
        ended = partial(_refuse_passage, passed)
        context.key_watch.add(key, call.ended, ended)
        passed.on_end = partial(context.key_watch.remove, key, ended)
    return SWITCHED


def _refuse_passage(passed: Passage, why: EarshotError) -> None:
    status, text, fields = key_failure(why)
    passed.refuse(close_code(status), reason_bytes(text), error_text(status, text, fields))


def _check_origin(call: Call, origins: tuple[str, ...]) -> None:
    """Accept pages of the service and of the allowed origins; programs other than browsers send no Origin.

    Raises:
        ForeignOrigin: the page has another origin.
    """
    origin = call.header(b"origin").decode("latin-1")
    if not origin or "*" in origins or origin in origins:
        return
    if call.header(FORWARDED):
        return
    with suppress(ValueError):  # It is malformed, and so foreign.
        scheme, own = urlsplit(origin)[:2]
        port = _DEFAULT_PORTS.get(scheme, "")  # Browsers leave it out, and some proxies add it to Host.
        if own.lower().removesuffix(port) == call.header(b"host").decode("latin-1").lower().removesuffix(port):
            return
    raise ForeignOrigin(FOREIGN)


_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}


def _wish(call: Call, session: str) -> Wish:
    query = query_parameters(call.scope, exact=True)
    mode, after = query.get("mode", "send"), query.get("after")
    if mode not in ("send", "listen"):
        raise BadRequest("mode: must be send or listen")
    wanted = wanted_types(query.get("events", WINDOW))
    return Wish(mode == "send", None if not after else parse("after", session, after), wanted)


def _creation(query: dict[str, str]) -> CreateSession:
    """Return the session to create from a query.

    Raises:
        BadRequest: a field is missing or malformed.
    """
    fields: dict[str, object] = {}
    for name in CreateSession.__struct_fields__:
        if (text := query.get(name)) is not None:
            fields[name] = text if name in _TEXTS else _json(name, text)
    if fields.setdefault("type", "stream") != "stream":
        raise BadRequest("type: must be stream")
    return decode(CREATE, msgspec.json.encode(fields))


_TEXTS: Final = frozenset({"content_type", "type", "window_hop", "file_name", "model"})


def _json(name: str, text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise BadRequest(f"{name}: not JSON") from None


def _named_session(context: SocketContext, principal: Principal, sent: str, request_id: str, hours: int) -> str:
    """Return the id of the session that a request of this many hours ago created.

    All ids of a request are in one partition, so its owner knows all of its sessions. They are derived from the key as
    sent, which is stored nowhere, so a backup does not reveal them.
    """
    partitions = context.sessions.sessions.coverage().partitions
    parts = (part.encode("utf-8", "surrogateescape") for part in ("socket", sent, principal.project, request_id))
    request, hour = b"\0".join(parts), int(time.time()) // REQUEST_SECONDS - hours
    digests = (
        hmac.digest(context.sessions.options.secret, request + b"\0%d\0%d" % (hour, draw), "sha256") for draw in count()
    )
    partition = zlib.crc32(request) % partitions
    ids = (drawn_id(int.from_bytes(digest[: ID_BITS // 8], "big"), partition, partitions) for digest in digests)
    return next(filter(None, ids))
