"""The analyser: takes each session's accepted chunks in order and writes their windows.

The fold reports which sessions have work. The rows say what the work is, so nothing is lost with the process. An agent
takes a tick of ready sessions (`ready.py`) and runs one step of each (`streams/agents.py`). A step (`step.py`) reuses
the state that the last one left in memory (`warm.py`). Worker processes decode, frame and run the models
(`streams/workers`); no partition is held meanwhile. This module decides what happens to a session whose step failed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

import mode
import structlog
from faust import App

from streams.folding import retry
from streams.models.loaded_models import LoadedModels
from streams.processes.deaths import Deaths
from streams.sessions.audio import AudioCache
from streams.sessions.files import FileSessions
from streams.sessions.ready import Place, ReadySessions
from streams.sessions.step import SessionStep, SessionSteps, StoreOf
from streams.sessions.taps import Taps
from streams.sessions.traced_steps import TracedSteps
from streams.sessions.warm import ActiveSession, WarmSessions
from streams.sessions.window_writer import WindowWriter
from streams.workers.process import StateLost, WorkerDied
from streams.workers.workers import Workers
from topics import keys, traces
from topics.errors import AudioError, EarshotError, NotOwned, RecordError, ServiceError, Unavailable

T = TypeVar("T")
log = structlog.get_logger(__name__)

TIDY_SECONDS: Final = 1.0
#: Ticks at a time for each worker. A tick spends most of its time waiting for the log.
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
        self.ready = ReadySessions(app, self._place)
        self._files = FileSessions(audio, spool, workers, self.ready)
        self.warm = WarmSessions(self.ready, self._files)
        parts = models, audio, store_of, writer, workers, self._files, self.warm, self.taps
        self.steps = SessionSteps(*parts) if traces.tracer is None else TracedSteps(traces.tracer, *parts)

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

    def _place(self, session: str) -> Place:
        """Return where a session's next step belongs; project "" if the session or its partition is gone."""
        active = self.warm.get(session)
        if active is None:
            return Place(self._project(session))
        analysis = active.analysis
        if active.apart or active.failures or analysis is None or analysis.process is None:
            return Place(active.project)
        return Place(active.project, analysis.process.child.number)

    def _project(self, session: str) -> str:
        try:
            opened = self.steps.store_of(session).opened(session)
        except Unavailable:
            return ""
        return "" if opened is None else opened.project

    # --- a tick -----------------------------------------------------------------------------------------------------

    async def chunks_of(self, sessions: Sequence[str]) -> list[SessionStep]:
        """Return the next audio of sessions of a tick, from memory or from the log; the others' steps have ended."""
        steps = []
        for session in sessions:
            active = self.warm.enter(session, self._project)
            try:
                step = await self.steps.begin(active, shares=len(sessions) > 1)
            except Exception as error:
                await self._end(active, error)
                continue
            if isinstance(step, SessionStep):
                steps.append(step)
            else:
                await self._end(active, step)
        return steps

    async def score(self, audio: Sequence[SessionStep]) -> list[SessionStep]:
        """Have a worker decode, window and score audio; return the steps with windows."""
        steps = await self._each(audio, self.steps.ask, self.steps.absorb)
        for step in steps:
            if step.windows is None:  # Those of a file are written many at a time.
                await self._end(step.active, 0.0)
        return [step for step in steps if step.windows is not None]

    async def write(self, windows: Sequence[SessionStep]) -> None:
        """Write windows; return once readers see them."""
        for step in await self._each(windows, self.steps.write, self.steps.finish):
            await self._end(step.active, self.steps.pause(step))

    async def _each(
        self,
        steps: Sequence[SessionStep],
        begin: Callable[[SessionStep], Awaitable[T]],
        end: Callable[[SessionStep, Awaitable[T]], Awaitable[None]],
    ) -> list[SessionStep]:
        """Begin something for all steps, then end it for each; return the steps that had no error."""
        begun, good = list[tuple[SessionStep, Awaitable[T]]](), list[SessionStep]()
        for step in steps:
            try:
                begun.append((step, begin(step)))
            except Exception as error:
                await self._end(step.active, error)
        try:
            for step, waiting in begun:
                try:
                    await end(step, waiting)
                    good.append(step)
                except Exception as error:
                    await self._end(step.active, error)
        finally:
            for _, waiting in begun:
                if isinstance(waiting, asyncio.Future):
                    waiting.cancel()
        return good

    async def _end(self, active: ActiveSession, outcome: Exception | float | None) -> None:
        """End a step by its error, or by the seconds until the next one is due, None if no work is left."""
        pause: float | None
        if isinstance(outcome, NotOwned):
            # The new owner finds the work in the rows; so does this node if the partition comes back.
            self.warm.drop(active.id)
            pause = None
        elif isinstance(outcome, StateLost):
            self.warm.close(active)
            pause = 0.0
        elif isinstance(outcome, WorkerDied):
            self.warm.close(active)
            sentence = active.deaths.note(outcome.killed)
            active.failed_at = self._reached(active.id)
            pause = 0.0 if sentence is None else await self._failed(active, AudioError(sentence))
        elif isinstance(outcome, Exception):
            pause = await self._failed(active, outcome)
        else:
            pause = outcome
            if not (active.failures or active.deaths) or self._reached(active.id) != active.failed_at:
                active.retries = active.failures = 0
                active.deaths = Deaths()
        if self.warm.get(active.id) is not active:
            self.warm.close(active)
            pause = None
        self.ready.done(active.id, pause)

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
