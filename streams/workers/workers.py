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
from typing import BinaryIO, Final

import mode
import structlog

from streams.audio.decode import BROKEN_LIMIT, MAX_FILE_S
from streams.processes.child import TOO_LONG, Deadlines, tell_unfiltered
from streams.processes.deaths import DEADLY, Deaths
from streams.quota import SharedQuota
from streams.workers.messages import Answer, Request, Segment, SegmentScores
from streams.workers.process import (
    DEADLINES,
    FIRST_COST,
    Call,
    ModelMissing,
    StateLost,
    WorkerDied,
    WorkerProcess,
    error_of,
)
from streams.workers.recordings import AHEAD_SAMPLES
from streams.workers.worker_slot import SHARED_IN_WORK, WorkerSlot
from topics.errors import AudioError, EngineError, Unavailable
from topics.media import MAX_RATE
from topics.turns import Sharing

log = structlog.get_logger(__name__)

#: Workers that each serve one project. A further project takes the slot of an idle worker, or waits.
MOST_OWNED: Final = 64
#: How long a project keeps its worker while others wait for one, however busy it is; and how long without any work.
SLICE_SECONDS: Final = 2.0
IDLE_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.25
#: Workers that each have a file.
MOST_FILES: Final = 256
#: For each answer about audio that outsiders encoded, and for a block that is only decoded; they normally take some
#: milliseconds.
OWNED: Final = Deadlines(processor=5.0, idle=1.0, wall=60.0)
READING: Final = Deadlines(processor=1.0, idle=1.0, wall=30.0)
#: How long after another project's request for live audio the workers count as shared.
SHARED_SECONDS: Final = 5.0
#: CPU time (s) of a step while they do: bounds how long a project waits for another's steps. Two fit into a worker, so
#: it has one while the loop reads the other's answer.
SHARED_STEP: Final = SHARED_IN_WORK / 2
#: Answers to requests for one segment, however long the recording; a compromised worker could give more.
MOST_PARTS: Final = 2 + MAX_FILE_S * MAX_RATE // AHEAD_SAMPLES
#: How long no worker is renewed for a model that a new one lacked.
MISSING_SECONDS: Final = 10.0
#: Pauses before starting a worker is retried.
PAUSES: Final = (0.0, 0.1, 0.2, 0.4, 1.0)
#: Returns the socket and the memory of a new worker, which can read a file given as a descriptor. Blocks.
Fork = Callable[[int | None], tuple[socket, int]]


class Workers(mode.Service):  # type: ignore[misc]
    """Analyses audio in processes. Loop only.

    `count` shared workers take the raw PCM of all projects. Audio that outsiders encoded is decoded and analysed by
    workers of one project each, forked on demand. A file has a worker of its own.
    """

    mundane_level = "debug"

    def __init__(self, count: int, fork: Fork, deadlines: Deadlines | None = None) -> None:
        super().__init__()
        self.count = count
        self._fork = fork
        self._deadlines = deadlines or DEADLINES
        #: Whether several projects have live audio.
        self._sharing = Sharing(SHARED_SECONDS)
        self._files: set[WorkerSlot] = set()
        #: Workers that are being started; also those of closed slots, which wait for the descriptors to close.
        self._starts: set[asyncio.Task[None]] = set()
        self._files_in_work = SharedQuota(count)
        self._shared = [WorkerSlot(None, self._deadlines, self._sharing) for _ in range(count)]
        #: By project, least recently used first; and the slots that wait for a worker.
        self._owned: OrderedDict[str, WorkerSlot] = OrderedDict()
        self._standing: deque[WorkerSlot] = deque()
        #: When a new worker last lacked a model, monotonic; by model.
        self._missing: dict[str, float] = {}
        self._numbers = itertools.count(1)
        self._stopping = False
        #: Number of workers that died since the start.
        self.deaths = 0

    async def on_started(self) -> None:
        self.home = asyncio.get_running_loop()
        for slot in self._shared:
            self._start_process(slot)

    async def on_stop(self) -> None:
        """End the workers; the rows still hold all audio that was not analysed."""
        self._stopping = True
        for slot in list(self._files):
            self.close_slot(slot)
        for slot in self.slots():
            if slot.starting is not None:
                slot.starting.cancel()
        await asyncio.gather(*self._starts, return_exceptions=True)
        for slot in self.slots():
            if slot.process is not None:
                slot.process.close()

    def slots(self) -> list[WorkerSlot]:
        """Return the slots of workers, the shared ones first."""
        return [*self._shared, *self._owned.values(), *self._files]

    def processes(self) -> list[WorkerProcess]:
        return [slot.process for slot in self.slots() if slot.process is not None and not slot.process.closed]

    @property
    def cost(self) -> float:
        """CPU time that the shared workers need per second of audio."""
        return max((slot.process.cost for slot in self._shared if slot.process is not None), default=FIRST_COST)

    # --- requests ---------------------------------------------------------------------------------------------------

    def new_number(self) -> int:
        """Return a new number to identify a session's state."""
        return next(self._numbers)

    async def score(self, slot: WorkerSlot, project: str, segment: Segment) -> SegmentScores:
        """Score a segment of a slot's file; its scores are float32[windows, tags].

        Raises:
            AudioError: decoding or scoring takes too long.
            EngineError: the model failed, or the worker died on every attempt.
            ModelMissing: new workers do not have the model.
            OSError: the file cannot be read.
        """
        deaths = Deaths()
        for _ in range(MOST_PARTS):
            try:
                answer = await self.ask_in_turn(slot, project, lambda _: segment, segment.model, alone=deaths.own > 0)
            except WorkerDied as died:
                if (sentence := deaths.note(died.killed)) is not None:
                    raise EngineError(sentence) from died
            except StateLost:
                continue
            else:
                if not isinstance(answer, SegmentScores):
                    raise error_of(answer)
                if answer.scores is not None or answer.end is not None:
                    return answer
        raise EngineError(DEADLY)

    def slot(self, owner: str | None) -> WorkerSlot:
        """Return the slot for a session's steps: the project's own, or a shared one.

        The first that has little to do gets more, because a worker that wakes up for one step costs as much as the
        step. If all are busy, the one with the least work gets it.
        """
        if owner is None:
            light = (slot for slot in self._shared if slot.is_light)
            return next(light, None) or min(self._shared, key=lambda slot: slot.load)
        slot = self._owned.get(owner)
        if slot is None:
            slot = self._owned[owner] = WorkerSlot(owner, self._deadlines.within(OWNED), self._sharing)
        self._owned.move_to_end(owner)
        return slot

    def longest_step(self, project: str) -> float:
        """Return the most seconds of audio for a step of a project that has work; fewer while several have."""
        now = time.monotonic()
        self._sharing.note(project, now)
        return SHARED_STEP / self.cost if self._sharing.is_shared(now) else math.inf

    def ask(self, slot: WorkerSlot, project: str, call: Call) -> asyncio.Future[Answer]:
        """Queue a request for the project's turn and return the future of its answer.

        The future raises WorkerDied if the worker ended before it answered, StateLost if the session must begin again,
        and Unavailable if the slot was closed or a worker for its file cannot be started.
        """
        if self._stopping or (slot.file is not None and slot not in self._files):
            call.answer.set_exception(Unavailable("the worker was ended"))
            return call.answer
        if slot.file is None:
            self._sharing.note(project, time.monotonic())
        slot.put(project, call)
        self._seat(slot)
        self._dispatch(slot)
        return call.answer

    async def ask_in_turn(
        self,
        slot: WorkerSlot,
        project: str,
        request: Callable[[WorkerProcess], Request],
        model: str | None,
        alone: bool = False,
    ) -> Answer:
        """Have a worker with a file work for the project when it is its turn; raises the errors of `ask`.

        As many of them work at a time as there are shared workers, so that live audio keeps its share of the cores.

        Raises:
            AudioError: decoding or scoring takes too long.
        """
        async with self._files_in_work.admit(project):
            future = asyncio.get_running_loop().create_future()
            try:
                return await self.ask(slot, project, Call(request, (), future, model, large=True, alone=alone))
            except WorkerDied as died:
                if died.fault == TOO_LONG:
                    raise AudioError(BROKEN_LIMIT) from died
                raise

    def _dispatch(self, slot: WorkerSlot) -> None:
        """Send the worker its next requests, as many as it may have at a time."""
        if self._standing and slot.is_owned and self._gives_way(slot):
            return
        while (process := slot.process) is not None and (call := slot.next()) is not None:
            if is_missing := call.model is not None and call.model not in process.models:
                if process.born >= call.made:
                    self._missing[call.model] = process.born
                elif time.monotonic() - self._missing.get(call.model, -math.inf) > MISSING_SECONDS:
                    self._renew(slot, process)
                    return
            slot.take()
            try:
                if is_missing:
                    raise ModelMissing(f"the workers do not have the model {call.model}")
                process.send(call)
            except (StateLost, Unavailable) as refused:
                call.answer.set_exception(refused)

    # --- workers with a file ----------------------------------------------------------------------------------------

    def open_slot(self, file: BinaryIO, owner: str = "", nice: int = 0, deadlines: Deadlines = OWNED) -> WorkerSlot:
        """Return a slot whose worker can read a file and does nothing else, until `close_slot`, which closes the file.

        The worker adds `nice` to its nice value.

        Raises:
            Unavailable: there are too many.
        """
        if len(self._files) >= MOST_FILES or self._stopping:
            file.close()
            raise Unavailable("too many recordings are being decoded")
        slot = WorkerSlot(owner, self._deadlines.within(deadlines), self._sharing, file, nice)
        self._files.add(slot)
        return slot

    def close_slot(self, slot: WorkerSlot) -> None:
        """End the worker of a file; its requests fail. Idempotent."""
        if slot not in self._files:
            return
        self._files.discard(slot)
        self._unseat(slot)
        self._refuse(slot, StateLost())
        assert slot.file is not None
        if slot.starting is None:
            slot.file.close()
        else:  # Its descriptor may be on its way to the zygote.
            slot.starting.add_done_callback(lambda _: slot.file is None or slot.file.close())
            slot.starting.cancel()

    def _refuse(self, slot: WorkerSlot, error: Exception) -> None:
        while (call := slot.take()) is not None:
            if not call.answer.done():
                call.answer.set_exception(error)

    # --- workers of one project ---------------------------------------------------------------------------------------

    def _seat(self, slot: WorkerSlot) -> None:
        """Start a worker for an empty slot, or queue the slot if no more workers are allowed."""
        if slot.seated or slot in self._standing:
            return
        if not slot.is_owned or self._has_seat():
            self._start_process(slot)
        else:
            self._standing.append(slot)

    def _has_seat(self) -> bool:
        seated = [slot for slot in self._owned.values() if slot.seated]
        if len(seated) < MOST_OWNED:
            return True
        unused = next((slot for slot in seated if slot.load[0] == 0 and slot.starting is None), None)
        if unused is not None:
            self._unseat(unused)
        return unused is not None

    def _gives_way(self, slot: WorkerSlot) -> bool:
        """Return whether a project gets nothing more for now because others wait for a worker."""
        process = slot.process
        if process is None or (slot.count and time.monotonic() - slot.since < SLICE_SECONDS):
            return False
        if not len(process):
            self._unseat(slot)
            self._start_process(self._standing.popleft())
            if slot.count:
                self._standing.append(slot)
        return True

    def _unseat(self, slot: WorkerSlot) -> None:
        """End a project's idle worker; its sessions begin again in another one."""
        process, slot.process = slot.process, None
        if process is not None:
            process.close()

    # --- processes --------------------------------------------------------------------------------------------------

    def _start_process(self, slot: WorkerSlot) -> None:
        if slot.starting is None and not self._stopping:
            slot.starting = asyncio.create_task(self._starting(slot), name="worker")
            self._starts.add(slot.starting)
            slot.starting.add_done_callback(self._starts.discard)

    async def _starting(self, slot: WorkerSlot) -> None:
        """Start a worker, retrying until it runs, unless it is for a file."""
        try:
            for pause in itertools.chain(PAUSES, itertools.repeat(PAUSES[-1])):
                born = time.monotonic()
                try:
                    line, memory = await self._forked(slot)
                    process = WorkerProcess(line, memory, lambda process: self._note_death(slot, process), born)
                    await process.greet()
                    break
                except (Unavailable, OSError) as error:
                    log.warning("workers.later", error=str(error))
                    if slot.file is not None:
                        self._refuse(slot, error)
                        return
                    await asyncio.sleep(pause)
        except Exception as error:
            await self.crash(error)
            return
        finally:
            slot.starting = None
        if not process.filtered:
            tell_unfiltered()
        process.child.give_way(slot.nice)
        process.answered = lambda process: self._dispatch(slot)
        slot.process, slot.since = process, time.monotonic()
        self._dispatch(slot)

    async def _forked(self, slot: WorkerSlot) -> tuple[socket, int]:
        """Return the result of `fork`; if cancelled meanwhile, close its descriptors."""
        file = None if slot.file is None else slot.file.fileno()
        forking = asyncio.ensure_future(asyncio.to_thread(self._fork, file))
        try:
            return await asyncio.shield(forking)
        except asyncio.CancelledError:
            with suppress(Unavailable, OSError):
                line, memory = await forking
                line.close()
                os.close(memory)
            raise

    def _renew(self, slot: WorkerSlot, process: WorkerProcess) -> None:
        """Replace a worker forked before a model was loaded; its sessions begin again elsewhere."""
        slot.process = None
        process.close()
        self._start_process(slot)

    def _note_death(self, slot: WorkerSlot, process: WorkerProcess) -> None:
        if self._stopping:
            return
        self.deaths += 1
        slot.deaths += 1
        log.warning("workers.died", process=process.child.number, in_work=len(process), reason=process.fault)
        if slot.process is process:
            slot.process = None
        if slot.owner is None:
            self._start_process(slot)
        elif slot.is_owned and self._standing:
            self._start_process(self._standing.popleft())
        if slot.count:
            self._seat(slot)

    @mode.Service.task
    async def _watch(self) -> None:
        """Kill workers that do not answer, and end those of projects that were idle for a while."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            for slot in self.slots():
                if slot.process is not None:
                    slot.process.check(slot.deadlines)
            for owner, slot in list(self._owned.items()):
                if not slot.load[0] and slot.starting is None and time.monotonic() - slot.used > IDLE_SECONDS:
                    self._unseat(slot)
                    del self._owned[owner]
