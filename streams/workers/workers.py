"""The worker processes of a node: who gets which request, and what becomes of it when one dies."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from socket import socket
from typing import Final

import mode
import msgspec
import structlog

from streams.audio.levels import SoundMeter
from streams.models.protocol import Floats
from streams.turns import Turns
from streams.workers.messages import (
    Answer,
    Beginning,
    Fault,
    Forgotten,
    Scored,
    Segment,
    SegmentScores,
    Step,
)
from streams.workers.process import Call, Deadlines, StateLost, WorkerDied, WorkerProcess
from topics.errors import AudioError, EngineError, Unavailable

log = structlog.get_logger(__name__)

#: What is in work in one worker: seconds of audio, or one step; and segments. What waits here is taken in turn.
STEPS_IN_WORK_S: Final = 2.0
SEGMENTS_IN_WORK: Final = 2
#: Workers that serve one project alone; past it the one that was used longest ago ends.
MOST_OWNED: Final = 16
LOOK_SECONDS: Final = 0.25
#: Processor time without an answer that a worker has for what strangers encoded; it takes some milliseconds.
OWNED_SECONDS: Final = 5.0
#: A worker that does not start is tried again at once, and then after so long.
RETRY_SECONDS: Final = 1.0
#: Times that a segment is asked for whose worker ends.
ATTEMPTS: Final = 3
#: Returns the socket and the memory of a new worker; blocks.
Fork = Callable[[], tuple[socket, int]]


class Place:
    """A worker, and the requests that wait for it, in turn by project. Loop only."""

    def __init__(self, owner: str | None) -> None:
        self.owner = owner
        self.process: WorkerProcess | None = None
        self.steps: Turns[Call] = Turns()
        self.segments: Turns[Call] = Turns()
        self.count = 0
        self.starting: asyncio.Task[None] | None = None

    @property
    def load(self) -> tuple[float, int]:
        """Return what there is to do, and how many sessions are kept."""
        process = self.process
        return self.count + (0 if process is None else len(process)), 0 if process is None else len(process.sessions)


class Workers(mode.Service):  # type: ignore[misc]
    """Analyses audio in processes. Loop only.

    Raw PCM of all projects goes to `count` shared workers. What strangers encoded is decoded and analysed by workers
    of one project each, which are forked when they are needed.
    """

    mundane_level = "debug"

    def __init__(self, count: int, fork: Fork, deadlines: Deadlines | None = None) -> None:
        super().__init__()
        self.count = count
        self._fork = fork
        self._deadlines = deadlines or Deadlines()
        strict = min(OWNED_SECONDS, self._deadlines.processor)
        self._owned_deadlines = msgspec.structs.replace(self._deadlines, processor=strict)
        self._shared = [Place(None) for _ in range(count)]
        self._owned: OrderedDict[str, Place] = OrderedDict()
        self._numbers = itertools.count(1)
        self._told = False
        self._stopping = False
        #: Workers that have died since the start.
        self.deaths = 0

    async def on_started(self) -> None:
        """Fork the shared workers."""
        for place in self._shared:
            self._start_process(place)

    async def on_stop(self) -> None:
        """End the workers; what is not analysed is found again in the rows."""
        self._stopping = True
        starting = [place.starting for place in self._places() if place.starting is not None]
        for task in starting:
            task.cancel()
        await asyncio.gather(*starting, return_exceptions=True)
        for place in self._places():
            if place.process is not None:
                place.process.close()

    def _places(self) -> list[Place]:
        return [*self._shared, *self._owned.values()]

    def processes(self) -> list[WorkerProcess]:
        """Return the workers that are there."""
        return [place.process for place in self._places() if place.process is not None and not place.process.closed]

    # --- requests ---------------------------------------------------------------------------------------------------

    def session(self, project: str, beginning: Beginning, owned: bool) -> WorkerSession:
        """Return a session whose steps a worker takes; `owned` if strangers encoded its audio."""
        return WorkerSession(self, next(self._numbers), project, beginning, project if owned else None)

    async def score(self, project: str, segment: Segment, samples: Floats) -> bytes:
        """Return the scores, float32[windows, tags], of a segment of a recording, in the background.

        Raises:
            EngineError: the model failed, or ended its process each time.
        """
        deaths = 0
        while deaths < ATTEMPTS:
            future = asyncio.get_running_loop().create_future()
            call = Call(
                lambda process: segment,
                [samples.data.cast("B")],
                future,
                segment.model,
                alone=deaths > 0,
                background=True,
            )
            try:
                answer = await self.ask(self.place(None), project, call)
            except WorkerDied:
                deaths += 1
            except StateLost:
                continue
            else:
                if isinstance(answer, SegmentScores):
                    return answer.scores
                raise error_of(answer)
        raise EngineError(f"the model ended its process {ATTEMPTS} times")

    def place(self, owner: str | None) -> Place:
        """Return where a session's steps are to be taken: the place with the least to do."""
        if owner is None:
            return min(self._shared, key=lambda place: place.load)
        place = self._owned.get(owner)
        if place is None:
            place = self._owned[owner] = Place(owner)
            self._evict()
        self._owned.move_to_end(owner)
        return place

    def _evict(self) -> None:
        for owner, place in list(self._owned.items())[:-1]:
            if len(self._owned) <= MOST_OWNED:
                return
            if place.load[0] == 0 and place.starting is None:
                del self._owned[owner]
                if place.process is not None:
                    place.process.close()

    def ask(self, place: Place, project: str, call: Call) -> asyncio.Future[Answer]:
        """Return the answer to a request, in the project's turn.

        The future raises WorkerDied if the worker ended before it had answered, StateLost if the session is to begin
        again.
        """
        if place.process is None:
            self._start_process(place)
        (place.segments if call.background else place.steps).put(project, call)
        place.count += 1
        self._dispatch(place)
        return call.answer

    def _dispatch(self, place: Place) -> None:
        """Give the worker what comes next, as much as it may have at a time."""
        while (process := place.process) is not None and (waiting := _next(place, process)) is not None:
            call = waiting.peek()
            assert call is not None
            if call.model not in process.models and process.born < call.made:
                self._renew(place, process)
                return
            waiting.take()
            place.count -= 1
            try:
                process.send(call)
            except (StateLost, Unavailable) as refused:
                call.answer.set_exception(refused)

    # --- processes --------------------------------------------------------------------------------------------------

    def _start_process(self, place: Place) -> None:
        if place.starting is None and not self._stopping:
            place.starting = asyncio.create_task(self._starting(place), name="worker")

    async def _starting(self, place: Place) -> None:
        """Start a worker at a place, until there is one."""
        try:
            for attempt in itertools.count():
                try:
                    line, memory = await self._forked()
                    process = WorkerProcess(line, memory, lambda process: self._note_death(place, process))
                    await process.greet()
                    break
                except (Unavailable, OSError) as error:
                    log.warning("workers.later", error=str(error))
                    await asyncio.sleep(RETRY_SECONDS if attempt else 0)
        except Exception as error:
            await self.crash(error)
            return
        finally:
            place.starting = None
        if not process.filtered and not self._told:
            self._told = True
            log.warning("workers.unfiltered", reason="this kernel filters no system calls; limits of resources hold")
        process.answered = lambda process: self._dispatch(place)
        place.process = process
        self._dispatch(place)

    async def _forked(self) -> tuple[socket, int]:
        """Return what `fork` gives; nobody loses it if this is cancelled meanwhile."""
        forking = asyncio.ensure_future(asyncio.to_thread(self._fork))
        try:
            return await asyncio.shield(forking)
        except asyncio.CancelledError:
            with suppress(Unavailable, OSError):
                line, memory = await forking
                line.close()
                os.close(memory)
            raise

    def _renew(self, place: Place, process: WorkerProcess) -> None:
        """Replace a worker that was forked before a model was loaded; its sessions begin again elsewhere."""
        place.process = None
        process.close()
        self._start_process(place)

    def _note_death(self, place: Place, process: WorkerProcess) -> None:
        if self._stopping:
            return
        self.deaths += 1
        log.warning("workers.died", process=process.process, in_work=len(process))
        if place.process is process:
            place.process = None
        self._start_process(place)

    @mode.Service.task
    async def _watch(self) -> None:
        """End workers that do not answer."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for place in self._places():
                process = place.process
                if process is None or process.closed:
                    continue
                deadlines = self._deadlines if place.owner is None else self._owned_deadlines
                if (reason := process.look(deadlines)) is not None:
                    log.warning("workers.killed", process=process.process, reason=reason)
                    process.kill()


def _next(place: Place, process: WorkerProcess) -> Turns[Call] | None:
    """Return where the call waits that a worker gets next, None if it gets none now."""
    queues = place.steps, place.segments
    for waiting in queues:
        while (call := waiting.peek()) is not None and call.answer.done():  # Nobody waits any more.
            waiting.take()
            place.count -= 1
    alone = next((waiting for waiting in queues if (call := waiting.peek()) is not None and call.alone), None)
    if alone is not None:
        return None if len(process) else alone
    return next(
        (waiting for waiting in queues if (call := waiting.peek()) is not None and _has_room(process, call)), None
    )


def _has_room(process: WorkerProcess, call: Call) -> bool:
    """Return whether a worker may have one more request."""
    if not len(process):
        return True
    if not process.has_slot or process.has_alone:
        return False
    if call.background:
        return process.segments < SEGMENTS_IN_WORK
    return not process.seconds or process.seconds + call.seconds <= STEPS_IN_WORK_S


class WorkerSession:
    """One session's analysis in a worker. Loop only; one step at a time."""

    def __init__(self, workers: Workers, number: int, project: str, beginning: Beginning, owner: str | None) -> None:
        self._workers = workers
        self._number = number
        self._project = project
        self._beginning = beginning
        self._owner = owner
        self._place: Place | None = None
        #: The worker that has the session's state.
        self._process: WorkerProcess | None = None
        #: Chunks taken so far: all with a sequence below this.
        self.taken = beginning.cursor.chunks if beginning.predicts else beginning.cursor.keep
        #: A chunk is longer than a step: the next step goes on with it and takes no others.
        self.reading = False

    async def take(
        self,
        audio: Sequence[bytes | memoryview],
        seconds: float,
        *,
        last: bool = False,
        together: bool = False,
        alone: bool = False,
        meter: SoundMeter | None = None,
    ) -> Scored:
        """Analyse the next audio, some `seconds`; `meter` gets what it sounds like.

        Raises:
            AudioError: the audio cannot be analysed.
            EngineError: the model failed, or this program.
            WorkerDied: the worker ended before it had answered.
            StateLost: the worker that has the session's state is gone. After any of these the session is to begin
                again, as another object.
        """
        lengths, drawn = tuple(map(len, audio)), meter is not None and meter.draws
        step = Step(self._number, None, lengths, last, together, meter is not None, drawn)
        if self._owner is not None or self._place is None:
            self._place = self._workers.place(self._owner)
        future = asyncio.get_running_loop().create_future()
        call = Call(partial(self._request, step), audio, future, self._beginning.model, seconds, alone=alone)
        begins = self._process is None
        answer = await self._workers.ask(self._place, self._project, call)
        if begins and isinstance(answer, Forgotten):  # It was told how to begin: it is no longer ours.
            raise WorkerDied
        if not isinstance(answer, Scored):
            raise error_of(answer)
        self.taken, self.reading = answer.taken, answer.reading
        if meter is not None and answer.measures is not None:
            meter.absorb(answer.measures)
        return answer

    def _request(self, step: Step, process: WorkerProcess) -> Step:
        """Return a step as a worker needs it.

        Raises:
            StateLost: another worker has the state.
        """
        if self._process is None:
            self._process = process
            process.sessions.add(self._number)
            step = msgspec.structs.replace(step, beginning=self._beginning)
        elif self._process is not process:
            raise StateLost
        return msgspec.structs.replace(step, forget=process.take_forgotten()) if process.forgotten else step

    def close(self) -> None:
        """Let the worker forget the session; allowed twice."""
        if self._process is not None:
            self._process.forget(self._number)


def error_of(answer: Answer) -> Exception:
    """Return what an answer that is no result says."""
    if isinstance(answer, Fault):
        if answer.audio:
            return AudioError(answer.message)
        return EngineError(answer.message) if answer.engine else WorkerFault(answer.message)
    return StateLost()


class WorkerFault(Exception):
    """A worker's own program failed."""
