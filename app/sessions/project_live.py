"""The sessions and jobs of a project as server-sent events, from all nodes."""

import asyncio
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping
from contextlib import aclosing
from itertools import chain
from typing import Final, NamedTuple

import structlog
from cachetools import LRUCache

from app.cluster.lists import LONGEST_PAGE
from app.cluster.takeovers import FORWARDED
from app.http.call import Call
from app.http.descriptions import Parameter, event_answer, operation
from app.http.queries import query_parameters
from app.http.replies import Reply, StreamReply
from app.http.server_sent import HEARTBEAT, HEARTBEAT_SECONDS, named_event
from app.http.streaming import in_turn
from app.http.turns import holder_of
from app.job_progress import ServiceProgress
from app.sessions.answers import PROJECT_EVENTS, SESSION_EVENTS, LiveDeleted, LiveFault, LiveJob, LiveMoved
from app.sessions.cursors import Place
from app.sessions.examples import HEARD, ID
from app.sessions.job_reader import JobReader
from app.sessions.joined_live import joined, part_event
from app.sessions.live import (
    CROWDED,
    LIVE_TEXT,
    NOW,
    WindowReader,
    events_text,
    listening,
    lost,
    rendered,
    types_by_name,
)
from app.sessions.live_rendering import ended_event
from app.sessions.rendering import readable_windows
from app.sessions.session_context import SessionContext
from app.sessions.socket_events import EventReader
from app.sessions.socket_messages import SOUND_EVENTS, SOURCE_EVENTS
from app.shared_descriptions import BROKEN, PROJECT_KEY
from app.shown_alarms import SHOWN, ShownAlarm
from topics.alarms.alarms import Alarm
from topics.errors import Unavailable
from topics.jobs.options import Service
from topics.ports.lists import ListQuery
from topics.ports.live import MET_WINDOWS, ProjectFollower
from topics.ports.sessions import SessionView
from topics.sessions.rules import SessionState
from topics.turns import Holder

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

#: How long the windows of a project's sessions are gathered: each piece costs a write here and a wake-up there.
GATHER_SECONDS: Final = 0.05
#: Steps per pass into earlier windows of sessions, to find which sounds are on. Other tasks run in between.
LOOK_BACKS: Final = 8
#: Seconds between checks for partitions that came or went.
POLL_SECONDS: Final = 2.0
#: Events of sessions besides their windows.
TOLD: Final = SOUND_EVENTS.keys() | SOURCE_EVENTS.keys()
NOT_HERE: Final = "this node is stopping or lost its partitions; connect again"
#: Ended sessions remembered per reader, which hears of each once.
ENDED_KEPT: Final = 1024
TEXT: Final = LIVE_TEXT
JOB: Final = LiveJob(ID, "processing", 0.5, {Service.SOUND: ServiceProgress("running", 0.5)}, cursor="2")


@operation(
    "GET /live",
    key=PROJECT_KEY,
    parameters=(
        Parameter("strips", "query", str, "The session of the project whose spectrograms are sent.", example=""),
    ),
    answers=event_answer(
        {**types_by_name(*SESSION_EVENTS), **SOUND_EVENTS, **SOURCE_EVENTS, **types_by_name(*PROJECT_EVENTS)},
        {"one window": events_text(NOW, HEARD), "a job": events_text(JOB), "an alarm": events_text(SHOWN)},
    ),
    faults=(CROWDED, *BROKEN),
)
async def follow_project(call: Call, context: SessionContext) -> Reply | StreamReply:
    """Listen to all sessions and jobs of the project.

    Windows and sounds of all its sessions and the progress of its jobs, on all nodes, without end. {TEXT} An event
    `session` comes first for each of the newest open sessions, and for others before their first event; windows before
    its `next_window` are in the status. If a session moves to another node, a window may come twice or be missing; the
    status has it. An event `job` comes first for each of the newest unfinished jobs, and then at each progress; its
    result is in the job. An event `alarm` comes for each alarm that is made, and when it changes, as by a delivery.
    """
    holder = holder_of(await context.project_keys.authenticate(call))
    # Raise errors now, while the status can still change.
    context.sessions.coverage()
    drawn = query_parameters(call.scope).get("strips") or None
    passed_on = bool(call.header(FORWARDED))
    pieces = _project_events(context, holder, drawn, passed_on)
    return listening(call, context, holder, pieces if passed_on else joined(call, context, pieces))


class _Reading(NamedTuple):
    """How far a reader of a project has read a session."""

    windows: WindowReader
    #: Detects when its sounds begin and end, and what happens to its source.
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
        sounds = EventReader(self._context.renderer, session, view.opened, Place(first), TOLD, named=True)
        if live:
            sounds.skip_notes(view)
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
            if lost(self._context, session) is LiveMoved:
                yield from self._forgotten(session)

    def _sounds(self, session: str, view: SessionView, sounds: EventReader) -> Iterator[bytes]:
        while sounds.more(view):
            looks_back = not sounds.known
            if looks_back:
                if not self._look_backs:
                    self._late[session] = 0
                    return
                self._look_backs -= 1
            yield rendered(sounds.step(view, None), ids=False)
            if looks_back and sounds.known:
                yield rendered(sounds.sounds_on(), ids=False)

    def _forgotten(self, session: str) -> Iterator[bytes]:
        if (reading := self._readings.pop(session, None)) is not None:
            why = lost(self._context, session) or LiveMoved
            if why is LiveDeleted:
                yield rendered(reading.sounds.gone(), ids=False)
            yield named_event(why(session))


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
            alarms: Collection[Alarm] = ()
            if here:  # Otherwise nothing may be read, and changes wait.
                changes |= follower.taken()
                taken_jobs, alarms = follower.taken_jobs(), follower.taken_alarms()
            # Rendered while sending, so that other tasks run in between and a slow reader holds nothing.
            news = chain(reader.all_events(changes), jobs.events((*first_jobs, *taken_jobs)), map(_alarm_event, alarms))
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


def _alarm_event(alarm: Alarm) -> bytes:
    return named_event(ShownAlarm.of(alarm))
