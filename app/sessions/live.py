"""Live sessions as server-sent events: one session, or all sessions and jobs of a project on any node.

Windows are read from the rows, so a slow reader loses none; it gets them later. The level and spectrogram of a window
are kept only for a while, and computed only while somebody listens.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import aclosing
from functools import partial
from itertools import chain
from typing import Final, NamedTuple

import structlog
from cachetools import LRUCache

from app.cluster.forwarding import FORWARDED
from app.cluster.lists import LONGEST_PAGE
from app.http.call import Call
from app.http.holder_quota import HolderQuota, Places
from app.http.queries import LARGEST, IntegerParameter, query_parameters
from app.http.replies import Reply, StreamReply
from app.http.server_sent import HEADERS, HEARTBEAT, HEARTBEAT_SECONDS, event, named_event
from app.http.streaming import in_turn
from app.http.turns import holder_of
from app.sessions.answers import LiveBehind, LiveDeleted, LiveFault, LiveMoved
from app.sessions.cursors import Place, next_window, parse
from app.sessions.job_reader import JobReader
from app.sessions.joined_live import joined, part_event
from app.sessions.live_rendering import PIECE, ended_event, session_event, window_events
from app.sessions.rendering import readable_windows
from app.sessions.session_context import SessionContext
from app.sessions.socket_events import Event, EventReader, wanted_types
from app.sessions.socket_messages import SOUND_EVENTS
from app.sessions.socket_quota import RETRY_SECONDS
from app.sessions.waiting import allowed_session
from topics import keys
from topics.errors import Unavailable
from topics.ports.lists import ListQuery
from topics.ports.live import MET_WINDOWS, ProjectFollower, SoundTap
from topics.ports.sessions import SessionView
from topics.sessions.rules import SessionState
from topics.turns import Holder

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

FROM: Final = IntegerParameter(
    "from", "Number of the first window; if negative, counted back from the next.", None, -LARGEST
)
#: Types of live-socket events to send instead of this stream's own.
EVENTS: Final = "events"
#: A reader this many windows behind gets an event that says so.
BEHIND: Final = 64
#: How long the windows of a project's sessions are gathered: each piece costs a write here and a wake-up there.
GATHER_SECONDS: Final = 0.05
#: Steps per pass into earlier windows of sessions, to find which sounds are on. Other tasks run in between.
LOOK_BACKS: Final = 8
#: Seconds between checks for partitions that came or went.
POLL_SECONDS: Final = 2.0
NOT_HERE: Final = "this node is stopping or lost its partitions; connect again"
LISTENERS: Final = 256
PROJECT_LISTENERS: Final = 64
FULL: Final = "too many listeners here"
PROJECT_FULL: Final = f"the project has {PROJECT_LISTENERS} listeners here, its limit: close one"
ORGANIZATION_FULL: Final = f"the organization has {LISTENERS // 2} listeners here, its limit: close one"
#: Ended sessions remembered per reader, which hears of each once.
ENDED_KEPT: Final = 1024
#: Reads what a session, None if it was deleted, has for a listener since the last call; an empty piece is not sent.
News = Callable[[SessionView | None, SoundTap | None], Iterator[bytes]]


def listener_quota() -> HolderQuota:
    """Return the places for listeners, because each costs a node work for every window."""
    organization = Places(LISTENERS // 2, ORGANIZATION_FULL)
    return HolderQuota(Places(PROJECT_LISTENERS, PROJECT_FULL), organization, Places(LISTENERS, FULL), RETRY_SECONDS)


async def follow_session(call: Call, context: SessionContext) -> Reply | StreamReply:
    """GET /audio_sessions/{id}/live: each window as it comes; needs no key, unless the deployment requires one.

    With `events`, it has the events of a live socket, each with its cursor.
    """
    session, view = await allowed_session(call, context)
    holder = call.holder
    if (types := query_parameters(call.scope).get(EVENTS)) is not None:
        events = EventReader(context.renderer, session, view.opened, *_first_event(call, session, view, types))
        news, with_levels = _event_news(events), events.tells_levels
    else:
        reader = WindowReader(context, session, _first_window(call, session, view), ids=True)
        news, with_levels = reader.events, True
    return _listening(call, context, holder, _followed(context, holder, news, with_levels))


async def follow_project(call: Call, context: SessionContext) -> Reply | StreamReply:
    """GET /api/v1/live: the windows of all sessions of the project and the progress of its jobs, from all nodes."""
    holder = holder_of(await context.project_keys.authenticate(call))
    # Raise errors now, while the status can still change.
    context.sessions.coverage()
    drawn = query_parameters(call.scope).get("strips") or None
    passed_on = bool(call.header(FORWARDED))
    pieces = _project_events(context, holder, drawn, passed_on)
    return _listening(call, context, holder, pieces if passed_on else joined(call, context, pieces))


def _listening(
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


def _first_event(call: Call, session: str, view: SessionView, types: str) -> tuple[Place, frozenset[str]]:
    """Return where a stream of events begins, and the types of its events.

    Raises:
        BadRequest: an unknown type, or an invalid cursor.
    """
    wanted = wanted_types(types)
    last = call.header(b"last-event-id").decode("latin-1")
    if last:
        return parse("Last-Event-ID", session, last), wanted
    if after := query_parameters(call.scope).get("after"):
        return parse("after", session, after), wanted
    return (_first_window(call, session, view), 0), wanted


def _event_news(reader: EventReader) -> News:
    """Read the events of a live socket, each with its cursor as id."""

    def news(view: SessionView | None, tap: SoundTap | None) -> Iterator[bytes]:
        if view is None:
            yield _rendered(reader.gone())
            return
        while reader.more(view):
            yield _rendered(reader.step(view, tap))

    return news


def _rendered(events: Iterable[Event], *, ids: bool = True) -> bytes:
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
        self._state: tuple[SessionState, str | None] | None = None

    def events(self, view: SessionView | None, source: SoundTap | None) -> Iterator[bytes]:
        """Yield the session's news; `source` has the levels and spectrograms of its windows."""
        if view is None:
            return
        assert source is not None
        total = readable_windows(view)
        if (now := (view.head.state, view.head.error)) != self._state:
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
        yield named_event((_lost(context, session) or LiveMoved)(session))
    finally:
        follower.close()
        if tap is not None:
            tap.close()


class _Reading(NamedTuple):
    """How far a reader of a project has read a session."""

    windows: WindowReader
    #: Detects when its sounds begin and end.
    sounds: EventReader


class ProjectReader:
    """Reads a project's sessions on this node for one listener."""

    def __init__(self, context: SessionContext, follower: ProjectFollower) -> None:
        self._context = context
        self._follower = follower
        self._readings: dict[str, _Reading] = {}
        self._ended: LRUCache[str, bool] = LRUCache(ENDED_KEPT)
        #: Steps into the past left in this pass, and sessions that wait for the next pass.
        self._look_backs = 0
        self._late: dict[str, int] = {}

    def open_ones(self, project: str) -> list[str]:
        """Return the newest open sessions; the others appear when they have news."""
        found = self._open(project)
        for session, view in found.items():
            self._readings[session] = self._reading(session, view, readable_windows(view), live=True)
        return list(found)

    def arrived(self, project: str) -> dict[str, int]:
        """Return the newest open sessions not met before, each with a window that another node may not have told."""
        found = self._open(project).items()
        return {
            session: max(0, readable_windows(view) - MET_WINDOWS)
            for session, view in found
            if session not in self._readings
        }

    def _open(self, project: str) -> dict[str, SessionView]:
        query = ListQuery(project, (SessionState.WRITABLE,), count=LONGEST_PAGE)
        return {session: view for _, session, view in self._context.sessions.listed(query)}

    def all_events(self, changes: Mapping[str, int]) -> Iterator[bytes]:
        """Yield the news of some sessions; a session not known yet begins with the window that comes with it."""
        self._look_backs = LOOK_BACKS
        for session, met_at in changes.items():
            try:
                view = self._context.sessions.view(session)
                if view is not None:
                    yield from self._events(session, view, met_at)
            except Unavailable:
                view = None
            if view is None:
                yield from self._forgotten(session)

    def taken_late(self) -> dict[str, int]:
        """Return the sessions that have more news than one pass takes."""
        late, self._late = self._late, {}
        return late

    def _reading(self, session: str, view: SessionView, first: int, live: bool = False) -> _Reading:
        sounds = EventReader(self._context.renderer, session, view.opened, (first, 0), SOUND_EVENTS.keys(), named=True)
        return _Reading(WindowReader(self._context, session, first, ids=False, live=live), sounds)

    def _events(self, session: str, view: SessionView, met_at: int) -> Iterator[bytes]:
        reading = self._readings.get(session)
        if reading is None:
            if session in self._ended:
                return
            reading = self._readings[session] = self._reading(session, view, met_at)
        yield from reading.windows.events(view, self._follower)
        yield from self._sounds(session, view, reading.sounds)
        if reading.sounds.finished:
            self._ended[session] = True
            del self._readings[session]
            yield ended_event(session, view)

    def moved(self) -> Iterator[bytes]:
        """Yield the sessions whose partition moved to another node."""
        for session in list(self._readings):
            if _lost(self._context, session) is LiveMoved:
                yield from self._forgotten(session)

    def _sounds(self, session: str, view: SessionView, sounds: EventReader) -> Iterator[bytes]:
        while sounds.more(view):
            looks_back = not sounds.known
            if looks_back:
                if not self._look_backs:
                    self._late[session] = 0
                    return
                self._look_backs -= 1
            yield _rendered(sounds.step(view, None), ids=False)
            if looks_back and sounds.known:
                yield _rendered(sounds.sounds_on(), ids=False)

    def _forgotten(self, session: str) -> Iterator[bytes]:
        if (reading := self._readings.pop(session, None)) is not None:
            why = _lost(self._context, session) or LiveMoved
            if why is LiveDeleted:
                yield _rendered(reading.sounds.gone(), ids=False)
            yield named_event(why(session))


def _lost(context: SessionContext, session: str) -> type[LiveDeleted | LiveMoved] | None:
    """Return why a session cannot be read here, or None if it can."""
    try:
        return LiveDeleted if context.sessions.view(session) is None else None
    except Unavailable:
        return LiveMoved


async def _project_events(
    context: SessionContext, holder: Holder, drawn: str | None, passed_on: bool
) -> AsyncGenerator[bytes, None]:
    """Yield the events of this node's sessions and jobs; with `passed_on` also name its partitions."""
    clock = asyncio.get_running_loop().time
    project = holder.project
    follower = context.sessions.follow_project(project, drawn)
    reader, spoke = ProjectReader(context, follower), clock() - HEARTBEAT_SECONDS
    jobs = JobReader(context.jobs, project)
    try:
        here = context.sessions.coverage().here
        changes: dict[str, int] = dict.fromkeys(reader.open_ones(project), 0) if here else {}
        first_jobs: Collection[str] = jobs.unfinished() if here else ()
        if passed_on:
            yield part_event(here)
        while True:
            if (now_here := context.sessions.coverage().here) != here:
                here = now_here
                moved = b"".join(reader.moved())
                yield moved + (part_event(here) if passed_on else b"")
                changes |= reader.arrived(project) if here else {}
            taken_jobs: Collection[str] = ()
            if here:  # Otherwise nothing may be read, and changes wait.
                changes |= follower.taken()
                taken_jobs = follower.taken_jobs()
            # Rendered while sending, so that other tasks run in between and a slow reader holds nothing.
            news = chain(reader.all_events(changes), jobs.events((*first_jobs, *taken_jobs)))
            async with aclosing(in_turn(context.turns, holder, news)) as pieces:
                async for piece in pieces:
                    yield piece
                    spoke = clock()
            changes, first_jobs = reader.taken_late(), ()
            if clock() >= spoke + HEARTBEAT_SECONDS:
                yield HEARTBEAT
                spoke = clock()
            await asyncio.sleep(GATHER_SECONDS)
            if not changes:
                await follower.changed(min(POLL_SECONDS, max(0.0, spoke + HEARTBEAT_SECONDS - clock())))
    except Unavailable as error:
        log.info("project is listened to no longer", reason=str(error))
        yield named_event(LiveFault(NOT_HERE))
    finally:
        follower.close()
