"""One session's analysis in a worker, as seen by the parent."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import msgspec

from streams.audio.levels import SoundMeter
from streams.workers.messages import Answer, Beginning, Forgotten, ScoredWindows, Step
from streams.workers.process import Call, StateLost, WorkerDied, WorkerProcess, error_of
from streams.workers.worker_slot import WorkerSlot
from streams.workers.workers import Workers


class WorkerSession:
    """Has one session analysed by a worker. Loop only; one step at a time."""

    def __init__(
        self, workers: Workers, project: str, beginning: Beginning, owned: bool, slot: WorkerSlot | None = None
    ) -> None:
        """If `owned`, outsiders encoded its audio, so only a worker of its project takes its steps.

        Its audio is the file of a `slot`, if there is one.
        """
        self._workers = workers
        self._number = workers.new_number()
        self._project = project
        self._beginning = beginning
        self._owner = project if owned else None
        self._slot = slot
        #: The worker with the session's state.
        self.process: WorkerProcess | None = None
        #: Of the last request: whether it began the state, its chunks, and who listens.
        self._begins, self._asked = True, 0
        self._meter: SoundMeter | None = None
        #: Number of chunks taken: all with a lower sequence number.
        self.taken = beginning.cursor.chunks if beginning.predicts else beginning.cursor.keep
        #: A chunk is longer than a step: the next step continues it and takes no others.
        self.reading = False

    def ask(
        self,
        audio: Sequence[bytes | memoryview],
        seconds: float,
        meter: SoundMeter | None = None,
        *,
        last: bool = False,
        together: bool = False,
        alone: bool = False,
    ) -> Awaitable[Answer]:
        """Request the next audio, about `seconds` long; return what gives the answer, for `absorb`.

        It may be the `last`. After any error, begin the session again with a new object. Only the request of a file
        begins when it is awaited.
        """
        self._begins, self._asked, self._meter = self.process is None, len(audio), meter
        lengths, drawn = tuple(map(len, audio)), meter is not None and meter.draws
        step = Step(self._number, None, lengths, last, together, meter is not None, drawn)
        request, model = partial(self._request, step), self._beginning.model
        if self._beginning.file and self._slot is not None:
            return self._ask_file(self._slot, request, alone)
        if self._owner is not None or self._slot is None:
            self._slot = self._workers.slot(self._owner)
        future = asyncio.get_running_loop().create_future()
        call = Call(request, audio, future, model, seconds, alone=alone)
        return self._workers.ask(self._slot, self._project, call)

    async def _ask_file(self, slot: WorkerSlot, request: Callable[[WorkerProcess], Step], alone: bool) -> Answer:
        try:
            return await self._workers.ask_in_turn(slot, self._project, request, self._beginning.model, alone)
        except StateLost:
            # It died between two steps. That counts: a file could have it do so each time.
            raise WorkerDied(killed=True) from None

    def absorb(self, answer: Answer) -> ScoredWindows:
        """Return the windows of an answer, and pass its level and spectrogram on.

        Raises:
            AudioError: the audio cannot be analysed.
            EngineError: the model failed.
            WorkerDied: the worker ended before it answered, or what it answers cannot be.
            StateLost: the worker with the session's state is gone.
        """
        if isinstance(answer, Forgotten) and (self._begins or self._beginning.file):  # It forgets none of these.
            raise WorkerDied
        if not isinstance(answer, ScoredWindows):
            raise error_of(answer)
        if not 0 <= answer.taken - self.taken <= max(1, self._asked):  # Nor this: it took no other chunks.
            raise WorkerDied
        self.taken, self.reading = answer.taken, answer.reading
        if self._meter is not None and answer.measures is not None:
            self._meter.absorb(answer.measures)
        return answer

    def _request(self, step: Step, process: WorkerProcess) -> Step:
        """Complete a step for a worker.

        Raises:
            StateLost: another worker has the state.
        """
        if self.process is None:
            self.process = process
            process.sessions.add(self._number)
            step = msgspec.structs.replace(step, beginning=self._beginning)
        elif self.process is not process:
            raise StateLost
        return msgspec.structs.replace(step, forget=process.take_forgotten()) if process.forgotten else step

    def close(self) -> None:
        """Let the worker drop the session's state. Idempotent."""
        if self.process is not None:
            self.process.forget(self._number)
