"""The analyser: takes each session's accepted chunks in order and writes their windows.

The fold reports which sessions have work. The rows say what the work is, so nothing is lost with the process. An agent
takes ready sessions (`ready.py`) and requests one step of each (`streams/agents.py`). A step (`step.py`) reuses
the state that the last one left in memory (`warm.py`). Worker processes decode, frame and run the models
(`streams/workers`); no partition is held meanwhile. This module decides what happens to a session whose step failed.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import mode
import structlog
from faust import App

from streams.folding import retry
from streams.models.loaded_models import LoadedModels
from streams.processes.deaths import Deaths
from streams.sessions.audio import AudioCache
from streams.sessions.files import FileSessions
from streams.sessions.ready import ReadySessions
from streams.sessions.step import SessionSteps, StoreOf
from streams.sessions.taps import Taps
from streams.sessions.warm import ActiveSession, WarmSessions
from streams.sessions.window_writer import WindowWriter
from streams.workers.process import StateLost, WorkerDied
from streams.workers.workers import Workers
from topics import keys
from topics.errors import AudioError, EarshotError, NotOwned, RecordError, ServiceError, Unavailable

log = structlog.get_logger(__name__)

TIDY_SECONDS: Final = 1.0
#: Steps at a time for each worker. A step spends most of its time waiting for the log.
ACTORS: Final = 64
ATTEMPTS: Final = 3

#: Ends a session with a message; returns once that is durable.
Fail = Callable[[str, str], Awaitable[None]]


class Analyser(mode.Service):  # type: ignore[misc]
    """Runs the analysis of all sessions on a node. Loop only."""

    mundane_level = "debug"

    def __init__(
        self,
        app: App,
        models: LoadedModels,
        audio: AudioCache,
        store_of: StoreOf,
        writer: WindowWriter,
        fail: Fail,
        workers: Workers,
        spool: Path,
    ) -> None:
        super().__init__()
        self.taps = Taps()
        self._fail = fail
        self.actors = ACTORS * workers.count
        self.ready = ReadySessions(app, self._project)
        self._files = FileSessions(audio, spool, workers, self.ready)
        self.warm = WarmSessions(self.ready, self._files)
        self.steps = SessionSteps(models, audio, store_of, writer, workers, self._files, self.warm, self.taps)

    async def on_stop(self) -> None:
        """Release all files; the rows still hold all unfinished work."""
        for session in list(self.warm):
            self.forget(session)
        await self._files.close()

    def enqueue(self, session: str) -> None:
        self.ready.add(session)

    def forget(self, session: str) -> None:
        """Drop a deleted session; its pending inference is cancelled at the next step."""
        self.ready.discard(session)
        self.taps.forget(session)
        active = self.warm.drop(session)
        # If an actor has it, a thread may be using it; its step closes it.
        if active is not None and not self.ready.is_running(session):
            self.warm.close(active)

    def sessions(self) -> list[str]:
        """Return the sessions that occupy memory here."""
        return [*self.warm, *self.ready.waiting()]

    def _project(self, session: str) -> str:
        """Return a session's project for taking turns; "" if the session or its partition is gone."""
        if (active := self.warm.get(session)) is not None:
            return active.project
        try:
            opened = self.steps.store_of(session).opened(session)
        except Unavailable:
            return ""
        return "" if opened is None else opened.project

    async def step(self, session: str) -> None:
        """Run one step of a session taken from `ready`."""
        pause = None
        try:
            pause = await self._attempt(session)
        finally:
            self.ready.done(session, pause)

    async def _attempt(self, session: str) -> float | None:
        """Run one step; return the seconds until the next is due, None if no work is left."""
        active = self.warm.enter(session, self._project)
        pause: float | None
        try:
            pause = await self.steps.take(active)
            if not (active.failures or active.deaths) or self._reached(active.id) != active.failed_at:
                active.retries = active.failures = 0
                active.deaths = Deaths()
        except NotOwned:
            # The new owner finds the work in the rows; so does this node if the partition comes back.
            self.warm.drop(session)
            pause = None
        except StateLost:
            self.warm.close(active)
            pause = 0.0
        except WorkerDied as died:
            self.warm.close(active)
            sentence = active.deaths.note(died.killed)
            active.failed_at = self._reached(active.id)
            pause = 0.0 if sentence is None else await self._failed(active, AudioError(sentence))
        except Exception as error:
            pause = await self._failed(active, error)
        if self.warm.get(session) is not active:
            self.warm.close(active)
            return None
        return pause

    async def _failed(self, active: ActiveSession, error: Exception) -> float | None:
        """End the session if its audio is at fault; retry faults of the service."""
        passing = isinstance(error, (ServiceError, OSError))
        if not passing:
            active.failures += 1
            active.failed_at = self._reached(active.id)
        if not isinstance(error, AudioError) and (passing or active.failures < ATTEMPTS):
            return self._later(active, error)
        if isinstance(error, RecordError):
            # Its client is told so, and it is analysed again if another version can read its rows.
            self.steps.store_of(active.id).set_aside(active.id, error)
            self.warm.drop(active.id)
            return None
        if not isinstance(error, EarshotError):
            log.error("analysis.failed", session=keys.shown(active.id), error=repr(error), exc_info=error)
        message = str(error) if isinstance(error, EarshotError) else "the audio could not be analysed: internal error"
        self.warm.close(active)
        try:
            await self._fail(active.id, message)
        except Unavailable as refused:
            return self._later(active, refused)
        active.ended = True
        return None

    def _reached(self, session: str) -> tuple[int, int] | None:
        """Return a session's numbers of settled windows and chunks; None if it is gone or cannot be read."""
        try:
            store = self.steps.store_of(session)
            head = store.peek(session) if store.readable(session) else None
        except Unavailable:
            return None
        return None if head is None else (head.windows, head.cursor.chunks)

    def _later(self, active: ActiveSession, error: Exception) -> float:
        active.retries += 1
        log.warning("analysis.retry", session=keys.shown(active.id), error=repr(error), attempt=active.retries)
        self.warm.close(active)
        return retry.pause(active.retries)

    @mode.Service.task
    async def _keep_tidy(self) -> None:
        while True:
            await asyncio.sleep(TIDY_SECONDS)
            self.warm.tidy()
            # A session that got a decoder may have been forgotten before its step.
            self._files.wake()
