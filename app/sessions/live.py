"""Live sessions as server-sent events: one session, or all sessions and jobs of a project on any node.

Windows are read from the rows, so a slow reader loses none; it gets them later. The level and spectrogram of a window
are kept only for a while, and computed only while somebody listens.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import aclosing
from functools import partial
from typing import Annotated, Any, Final

import msgspec
import structlog

from app.http.call import Call
from app.http.descriptions import Parameter, event_answer, fault_of, integer_query, operation
from app.http.holder_quota import HolderQuota, Places
from app.http.queries import LARGEST, IntegerParameter, query_parameters
from app.http.replies import Reply, StreamReply
from app.http.server_sent import HEADERS, HEARTBEAT, HEARTBEAT_SECONDS, Named, event, named_event
from app.sessions.answers import SESSION_EVENTS, LiveBehind, LiveDeleted, LiveEnd, LiveMoved, LiveSession, LiveWindow
from app.sessions.cursors import FIRST, Place, next_window, parse
from app.sessions.examples import HEARD, ID, LISTED
from app.sessions.live_rendering import PIECE, ended_event, session_event, window_events
from app.sessions.rendering import check_known, readable_windows
from app.sessions.session_context import SessionContext
from app.sessions.socket_events import TYPES, Event, EventReader, wanted_types
from app.sessions.socket_messages import SOUND_EVENTS, SOURCE_EVENTS, Loudness
from app.sessions.socket_quota import RETRY_SECONDS
from app.sessions.waiting import NO_SUCH_SESSION, SESSION, SESSION_KEY, allowed_session
from app.shared_descriptions import BROKEN
from topics import keys
from topics.errors import Unavailable
from topics.ports.live import SoundTap
from topics.ports.sessions import SessionView
from topics.turns import Holder

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

FROM: Final = IntegerParameter(
    "from", "Number of the first window; if negative, counted back from the next.", None, -LARGEST
)
#: Types of live-socket events to send instead of this stream's own.
EVENTS: Final = "events"
#: A reader this many windows behind gets an event that says so.
BEHIND: Final = 64
LISTENERS: Final = 256
PROJECT_LISTENERS: Final = 64
FULL: Final = "too many listeners here"
PROJECT_FULL: Final = f"the project has {PROJECT_LISTENERS} listeners here, its limit: close one"
ORGANIZATION_FULL: Final = f"the organization has {LISTENERS // 2} listeners here, its limit: close one"
NOW: Final = LiveSession(**msgspec.structs.asdict(LISTED), next_window=17, window_size=1, window_hop=0.5)
CROWDED: Final = Unavailable(FULL)
LIVE_TEXT: Final = (
    f"Server-sent events, with a comment every {HEARTBEAT_SECONDS:g} s of silence. Levels and spectrograms are made "
    "only while somebody listens: earlier windows have none. Windows are read from storage: a slow reader gets them "
    f"all, later, after an event `behind`. A node takes {LISTENERS} listeners, "
    f"{PROJECT_LISTENERS} per project."
)
#: Reads what a session, None if it was deleted, has for a listener since the last call; an empty piece is not sent.
News = Callable[[SessionView | None, SoundTap | None], Iterator[bytes]]


def listener_quota() -> HolderQuota:
    """Return the places for listeners, because each costs a node work for every window."""
    organization = Places(LISTENERS // 2, ORGANIZATION_FULL)
    return HolderQuota(Places(PROJECT_LISTENERS, PROJECT_FULL), organization, Places(LISTENERS, FULL), RETRY_SECONDS)


def events_text(*events: Named, number: int | None = None) -> str:
    return b"".join(named_event(one, number if isinstance(one, LiveWindow) else None) for one in events).decode()


def types_by_name(*kinds: type[Named]) -> dict[str, Any]:
    """Return the types of events by name."""
    return {kind.event: kind for kind in kinds}


@operation(
    "GET /audio_sessions/{session_id}/live",
    standby=True,
    key=SESSION_KEY,
    parameters=(
        SESSION,
        integer_query(FROM),
        Parameter(
            "Last-Event-ID",
            "header",
            str,
            "Id of the last event you read, or a live socket's cursor: later events follow.",
            example="16",
        ),
        Parameter(
            EVENTS,
            "query",
            Annotated[str, msgspec.Meta(pattern=r"^[a-z.,]*$")],
            f"Comma-separated types of a live socket ({', '.join(TYPES)}). The stream then has these events as on "
            "the socket, with cursors as ids.",
        ),
        Parameter("after", "query", str, "With `events`: events after this cursor; `start` for all."),
    ),
    answers=event_answer(
        {**types_by_name(*SESSION_EVENTS), **SOUND_EVENTS, **SOURCE_EVENTS, "level": Loudness},
        {"one window": events_text(NOW, HEARD, LiveEnd(ID, 18), number=17)},
    ),
    faults=lambda: (fault_of(FROM.judge, "now"), fault_of(wanted_types, "all"), NO_SUCH_SESSION, CROWDED, *BROKEN),
)
async def follow_session(call: Call, context: SessionContext) -> Reply | StreamReply:
    """Listen to a session.

    Each window as it is analysed, to the end of the session. {LIVE_TEXT} The id of an event `window` is its number, so
    a client that reconnects with `Last-Event-ID` misses none.
    """
    session, view = await allowed_session(call, context)
    holder = call.holder
    if (types := query_parameters(call.scope).get(EVENTS)) is not None:
        begin, wanted = _first_event(call, session, view, types)
        check_known(view, next_window(begin or FIRST))
        events = EventReader(context.renderer, session, view.opened, begin or Place(readable_windows(view)), wanted)
        if begin is None:
            events.skip_notes(view)
        news, with_levels = _event_news(events), events.tells_levels
    else:
        first = _first_window(call, session, view)
        check_known(view, first)
        reader = WindowReader(context, session, first, ids=True)
        news, with_levels = reader.events, True
    return listening(call, context, holder, _followed(context, holder, news, with_levels))


def listening(
    call: Call, context: SessionContext, holder: Holder, pieces: AsyncGenerator[bytes, None]
) -> Reply | StreamReply:
    if call.scope["method"] == "HEAD":
        return Reply(200, HEADERS.copy())
    context.listeners.take(holder)
    return StreamReply(200, HEADERS.copy(), _giving_back(context, holder, pieces))


async def _giving_back(
    context: SessionContext, holder: Holder, pieces: AsyncGenerator[bytes, None]
) -> AsyncGenerator[bytes, None]:
    try:
        async for piece in pieces:
            yield piece
    finally:
        context.listeners.give_back(holder)
        await pieces.aclose()


def _first_window(call: Call, session: str, view: SessionView) -> int:
    """Return the first window: the one after `Last-Event-ID`, or `from`, or the next one to come.

    Raises:
        BadRequest: `from` is not a number, or `Last-Event-ID` is no cursor of the session.
    """
    total = readable_windows(view)
    if last := call.header(b"last-event-id").decode("latin-1"):
        return next_window(parse("Last-Event-ID", session, last))
    if (text := query_parameters(call.scope).get(FROM.name)) is None:
        return total
    first = FROM.judge(text)
    return first if first >= 0 else max(0, total + first)


def _first_event(call: Call, session: str, view: SessionView, types: str) -> tuple[Place | None, frozenset[str]]:
    """Return where a stream of events begins, None with what comes next, and the types of its events.

    Raises:
        BadRequest: an unknown type, or an invalid cursor.
    """
    wanted = wanted_types(types)
    last = call.header(b"last-event-id").decode("latin-1")
    if last:
        return parse("Last-Event-ID", session, last), wanted
    query = query_parameters(call.scope)
    if after := query.get("after"):
        return parse("after", session, after), wanted
    return Place(_first_window(call, session, view)) if FROM.name in query else None, wanted


def _event_news(reader: EventReader) -> News:
    """Read the events of a live socket, each with its cursor as id."""

    def news(view: SessionView | None, tap: SoundTap | None) -> Iterator[bytes]:
        if view is None:
            yield rendered(reader.gone())
            return
        while reader.more(view):
            yield rendered(reader.step(view, tap))

    return news


def rendered(events: Iterable[Event], *, ids: bool = True) -> bytes:
    return b"".join(event(kind, at if ids else None, text) for kind, at, text in events)


class WindowReader:
    """Reads the states and windows of a session for one listener, each once."""

    def __init__(self, context: SessionContext, session: str, first: int, *, ids: bool, live: bool = False) -> None:
        """Begin with window `first`; `ids` adds the number of a window as id; `live` says that none came earlier."""
        self._context = context
        self._session = session
        self._next = first
        self._ids = ids
        self._live = live
        #: What was told of the session.
        self._state: tuple[object, ...] | None = None

    def events(self, view: SessionView | None, source: SoundTap | None) -> Iterator[bytes]:
        """Yield the session's news; `source` has the levels and spectrograms of its windows."""
        if view is None:
            return
        assert source is not None
        total = readable_windows(view)
        if (now := (view.head.state, view.head.error, view.opened.file_name, view.opened.metadata)) != self._state:
            self._state = now
            yield session_event(self._session, view, self._next)
        if self._live and total - self._next > BEHIND:
            yield named_event(LiveBehind(self._session, self._next, total))
        self._live = True
        sound_of = partial(source.window, self._session)
        while self._next < total:
            first, self._next = self._next, min(total, self._next + PIECE)
            windows = (self._context.renderer, self._session, view, first, self._next)
            yield b"".join(window_events(*windows, sound_of, self._ids))


async def _followed(
    context: SessionContext, holder: Holder, news: News, with_levels: bool
) -> AsyncGenerator[bytes, None]:
    """Yield the news and heartbeats of the session that is the holder's subject until it ends."""
    session = holder.subject
    clock = asyncio.get_running_loop().time
    # Register before the first reading, so that no change in between is missed.
    follower = context.sessions.follow(session)
    tap = context.sessions.listen(session) if with_levels else None
    spoke = clock() - HEARTBEAT_SECONDS
    try:
        while True:
            view = context.sessions.view(session)
            async with aclosing(context.turns.each(holder, news(view, tap))) as pieces:
                async for piece in pieces:
                    if piece:
                        yield piece
                        spoke = clock()
            if view is None:
                yield named_event(LiveDeleted(session))
                return
            if view.head.ended:
                yield ended_event(session, view)
                return
            if clock() >= spoke + HEARTBEAT_SECONDS:
                yield HEARTBEAT
                spoke = clock()
            await follower.changed(max(0.0, spoke + HEARTBEAT_SECONDS - clock()))
    except Unavailable as error:
        log.info("session is listened to no longer", session=keys.shown(session), reason=str(error))
        yield named_event((lost(context, session) or LiveMoved)(session))
    finally:
        follower.close()
        if tap is not None:
            tap.close()


def lost(context: SessionContext, session: str) -> type[LiveDeleted | LiveMoved] | None:
    """Return why a session cannot be read here, or None if it can."""
    try:
        return LiveDeleted if context.sessions.view(session) is None else None
    except Unavailable:
        return LiveMoved
