"""The worker processes of a node: assigns requests and handles the deaths of workers."""

import asyncio
import itertools
import math
import os
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from socket import socket
from typing import Final

import mode
import msgspec
import structlog

from streams.decoders.child import Deadlines, tell_unfiltered
from streams.models.protocol import Floats
from streams.workers.messages import Answer, Segment, SegmentScores
from streams.workers.places import Place
from streams.workers.process import (
    DEADLINES,
    FIRST_COST,
    Call,
    Deaths,
    DoesNotFit,
    ModelMissing,
    StateLost,
    WorkerDied,
    WorkerProcess,
    error_of,
)
from topics.errors import EngineError, Unavailable

log = structlog.get_logger(__name__)

#: Workers that each serve one project. A further project takes the place of an idle worker, or waits.
MOST_OWNED: Final = 64
#: How long a project keeps its worker while others wait for one, however busy it is; and how long without any work.
SLICE_SECONDS: Final = 2.0
IDLE_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 0.25
#: CPU time per answer for audio that outsiders encoded; it normally takes some milliseconds.
OWNED_SECONDS: Final = 5.0
#: How long no worker is renewed for a model that a new one lacked.
MISSING_SECONDS: Final = 10.0
#: Pauses before starting a worker is retried.
PAUSES: Final = (0.0, 0.1, 0.2, 0.4, 1.0)
#: Returns the socket and the memory of a new worker. Blocks.
Fork = Callable[[], tuple[socket, int]]


class Workers(mode.Service):  # type: ignore[misc]
    """Analyses audio in processes. Loop only.

    `count` shared workers take the raw PCM of all projects. Audio that outsiders encoded is decoded and analysed by
    workers of one project each, forked on demand.
    """

    mundane_level = "debug"

    def __init__(self, count: int, fork: Fork, deadlines: Deadlines | None = None) -> None:
        super().__init__()
        self.count = count
        self._fork = fork
        self._deadlines = deadlines or DEADLINES
        strict = min(OWNED_SECONDS, self._deadlines.processor)
        self._owned_deadlines = msgspec.structs.replace(self._deadlines, processor=strict)
        self._shared = [Place(None) for _ in range(count)]
        #: By project, least recently used first; and the places that wait for a worker.
        self._owned: OrderedDict[str, Place] = OrderedDict()
        self._standing: deque[Place] = deque()
        #: When a new worker last lacked a model, monotonic; by model.
        self._missing: dict[str, float] = {}
        self._numbers = itertools.count(1)
        self._stopping = False
        #: Number of workers that died since the start.
        self.deaths = 0

    async def on_started(self) -> None:
        for place in self._shared:
            self._start_process(place)

    async def on_stop(self) -> None:
        """End the workers; the rows still hold all audio that was not analysed."""
        self._stopping = True
        starting = [place.starting for place in self.places() if place.starting is not None]
        for task in starting:
            task.cancel()
        await asyncio.gather(*starting, return_exceptions=True)
        for place in self.places():
            if place.process is not None:
                place.process.close()

    def places(self) -> list[Place]:
        """Return the places of workers, the shared ones first."""
        return [*self._shared, *self._owned.values()]

    def processes(self) -> list[WorkerProcess]:
        return [place.process for place in self.places() if place.process is not None and not place.process.closed]

    @property
    def cost(self) -> float:
        """CPU time that the shared workers need per second of audio."""
        return max((place.process.cost for place in self._shared if place.process is not None), default=FIRST_COST)

    # --- requests ---------------------------------------------------------------------------------------------------

    def new_number(self) -> int:
        """Return a new number to identify a session's state."""
        return next(self._numbers)

    async def score(self, project: str, segment: Segment, samples: Floats) -> bytes:
        """Score a segment of a recording in the background; return float32[windows, tags].

        Raises:
            EngineError: the model failed, the worker died on every attempt, or the segment does not fit its memory.
            ModelMissing: new workers do not have the model.
        """
        deaths = Deaths()
        while True:
            future = asyncio.get_running_loop().create_future()
            call = Call(
                lambda process: segment,
                [samples.data.cast("B")],
                future,
                segment.model,
                len(samples) / segment.rate,
                alone=deaths.own > 0,
                background=True,
            )
            try:
                answer = await self.ask(self.place(None), project, call)
            except WorkerDied as died:
                if (sentence := deaths.note(died)) is not None:
                    raise EngineError(sentence) from died
            except StateLost:
                continue
            except DoesNotFit as error:
                # Another attempt would fail too.
                fault = f"{segment.model} needs {segment.length} bytes of audio at a time, more than a worker takes"
                raise EngineError(fault) from error
            else:
                if isinstance(answer, SegmentScores):
                    return answer.scores
                raise error_of(answer)

    def place(self, owner: str | None) -> Place:
        """Return the place for a session's steps: the project's own, or the shared one with the least work."""
        if owner is None:
            return min(self._shared, key=lambda place: place.load)
        place = self._owned.get(owner)
        if place is None:
            place = self._owned[owner] = Place(owner)
        self._owned.move_to_end(owner)
        return place

    def ask(self, place: Place, project: str, call: Call) -> asyncio.Future[Answer]:
        """Queue a request for the project's turn and return the future of its answer.

        The future raises WorkerDied if the worker ended before it answered, and StateLost if the session must begin
        again.
        """
        place.put(project, call)
        self._seat(place)
        self._dispatch(place)
        return call.answer

    def _dispatch(self, place: Place) -> None:
        """Send the worker its next requests, as many as it may have at a time."""
        if self._standing and place.owner is not None and self._gives_way(place):
            return
        while (process := place.process) is not None and (found := place.next()) is not None:
            waiting, call = found
            if is_missing := call.model not in process.models:
                if process.born >= call.made:
                    self._missing[call.model] = process.born
                elif time.monotonic() - self._missing.get(call.model, -math.inf) > MISSING_SECONDS:
                    self._renew(place, process)
                    return
            place.take(waiting)
            try:
                if is_missing:
                    raise ModelMissing(f"the workers do not have the model {call.model}")
                process.send(call)
            except (StateLost, Unavailable) as refused:
                call.answer.set_exception(refused)

    # --- workers of one project ---------------------------------------------------------------------------------------

    def _seat(self, place: Place) -> None:
        """Start a worker for an empty place, or queue the place if no more workers are allowed."""
        if place.seated or place in self._standing:
            return
        if place.owner is None or self._has_seat():
            self._start_process(place)
        else:
            self._standing.append(place)

    def _has_seat(self) -> bool:
        seated = [place for place in self._owned.values() if place.seated]
        if len(seated) < MOST_OWNED:
            return True
        unused = next((place for place in seated if place.load[0] == 0 and place.starting is None), None)
        if unused is not None:
            self._unseat(unused)
        return unused is not None

    def _gives_way(self, place: Place) -> bool:
        """Return whether a project gets nothing more for now because others wait for a worker."""
        process = place.process
        if process is None or (place.count and time.monotonic() - place.since < SLICE_SECONDS):
            return False
        if not len(process):
            self._unseat(place)
            self._start_process(self._standing.popleft())
            if place.count:
                self._standing.append(place)
        return True

    def _unseat(self, place: Place) -> None:
        """End a project's idle worker; its sessions begin again in another one."""
        process, place.process = place.process, None
        if process is not None:
            process.close()

    # --- processes --------------------------------------------------------------------------------------------------

    def _start_process(self, place: Place) -> None:
        if place.starting is None and not self._stopping:
            place.starting = asyncio.create_task(self._starting(place), name="worker")

    async def _starting(self, place: Place) -> None:
        """Start a worker, retrying until it runs."""
        try:
            for pause in itertools.chain(PAUSES, itertools.repeat(PAUSES[-1])):
                born = time.monotonic()
                try:
                    line, memory = await self._forked()
                    process = WorkerProcess(line, memory, lambda process: self._note_death(place, process), born)
                    await process.greet()
                    break
                except (Unavailable, OSError) as error:
                    log.warning("workers.later", error=str(error))
                    await asyncio.sleep(pause)
        except Exception as error:
            await self.crash(error)
            return
        finally:
            place.starting = None
        if not process.filtered:
            tell_unfiltered("workers")
        process.answered = lambda process: self._dispatch(place)
        place.process, place.since = process, time.monotonic()
        self._dispatch(place)

    async def _forked(self) -> tuple[socket, int]:
        """Return the result of `fork`; if cancelled meanwhile, close its descriptors."""
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
        """Replace a worker forked before a model was loaded; its sessions begin again elsewhere."""
        place.process = None
        process.close()
        self._start_process(place)

    def _note_death(self, place: Place, process: WorkerProcess) -> None:
        if self._stopping:
            return
        self.deaths += 1
        place.deaths += 1
        log.warning("workers.died", process=process.child.number, in_work=len(process), reason=process.fault)
        if place.process is process:
            place.process = None
        if place.owner is None:
            self._start_process(place)
        elif self._standing:
            self._start_process(self._standing.popleft())
        if place.count:
            self._seat(place)

    @mode.Service.task
    async def _watch(self) -> None:
        """Kill workers that do not answer, and end those of projects that were idle for a while."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for place in self.places():
                if place.process is not None:
                    place.process.look(self._deadlines if place.owner is None else self._owned_deadlines)
                idle = not place.load[0] and place.starting is None and time.monotonic() - place.used > IDLE_SECONDS
                if place.owner is not None and idle:
                    self._unseat(place)
                    del self._owned[place.owner]
