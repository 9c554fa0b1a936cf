"""The work of a worker process: reads requests from the shared memory, analyses, writes the answers there."""

import mmap
import os
import socket
import time
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import BinaryIO, Final

from streams.audio import decode
from streams.audio.decode import AudioFile
from streams.audio.levels import SoundMeter
from streams.models.protocol import Floats, SoundEngine
from streams.processes.confinement import REFUSALS
from streams.processes.messages import Hello
from streams.workers import messages
from streams.workers.messages import Answer, Beginning, Block, Fault, Forgotten, Read, Request, Segment, Step
from streams.workers.progress import Progress, StreamProgress, take_together
from streams.workers.recordings import FileProgress, SegmentScorer, read_blocks
from streams.workers.window_progress import WindowProgress
from topics.errors import AudioError, AudioTooLong, EngineError
from topics.media import Media

#: Sessions with state, some 27 KiB each, or 100 KiB with a second model; beyond this, the least recently used is
#: evicted.
MOST_SESSIONS: Final = 4096
#: Maximum number of steps scored together.
TOGETHER: Final = 4
#: Seconds for which answers wait for those of further steps that have come: each message wakes the node's loop.
ANSWER_SECONDS: Final = 0.005


def open_file(
    source: BinaryIO,
    media: Media,
    longest_s: int = decode.MAX_FILE_S,
    block_samples: int | None = None,
) -> AudioFile:
    """Open a chunk in memory, of any container; raises the errors of `streams.audio.decode.open_file`."""
    return decode.open_file(source, media, longest_s, block_samples, is_chunk=True)


class Worker:
    """Answers one parent's requests. One thread at a time."""

    def __init__(
        self, line: socket.socket, memory: mmap.mmap, engines: Mapping[str, SoundEngine], file: int | None = None
    ) -> None:
        """Use a socket and a memory, as `messages` describes, and the descriptor of a file."""
        self._line = line
        self._file = file
        self._slots = messages.slots_of(memory)
        self._engines = engines
        self._sessions: OrderedDict[int, Progress] = OrderedDict()
        self._steps: deque[tuple[int, Step]] = deque()
        #: Slots with answers that the parent does not know of, and since when.
        self._unsent, self._since = b"", 0.0
        #: The blocks of the file, and the next one's number.
        self._blocks: Iterator[tuple[Block, Sequence[Floats]]] = iter(())
        self._next_block = 0
        self._scorer: SegmentScorer | None = None

    def serve(self, filtered: bool) -> None:
        """Send the greeting, then answer until the parent closes its end."""
        self._line.send(messages.encode(Hello(os.getpid(), filtered, tuple(self._engines))))
        while self._receive():
            if self._steps:
                tick = self._next_tick()
                audio = self._chunks_of(tick)
                windows = self._score(audio)
                self._write(windows)

    def _receive(self) -> bool:
        """Take all arrived requests; wait for one only if there is no step. Return False at the end."""
        while True:
            try:
                slots = self._line.recv(messages.LINE_BYTES, socket.MSG_DONTWAIT if self._steps else 0)
            except BlockingIOError:
                return True
            except ConnectionError:
                return False
            if not slots:
                return False
            for slot in slots:
                self._note(slot)

    def _note(self, slot: int) -> None:
        message = self._message(slot)
        if not isinstance(message, Step):
            answer, samples = self._from_file(message)
            self._write({slot: answer}, samples)
            return
        for session in message.forget:
            self._forget(session)
        self._steps.append((slot, message))

    def _message(self, slot: int) -> Request:
        memory = self._slots[slot]
        (length,) = messages.LENGTH.unpack_from(memory)
        request: Request = messages.request(memory[4 : 4 + length])
        return request

    def _audio(self, slot: int) -> memoryview:
        memory = self._slots[slot]
        (length,) = messages.LENGTH.unpack_from(memory)
        return memory[4 + length :]

    # --- sessions ---------------------------------------------------------------------------------------------------

    def _next_tick(self) -> list[tuple[int, Step]]:
        """Return the next step with its slot, or several that may be scored together."""
        taken = [self._steps.popleft()]
        while taken[0][1].together and self._steps and self._steps[0][1].together and len(taken) < TOGETHER:
            taken.append(self._steps.popleft())
        return taken

    def _chunks_of(self, tick: Sequence[tuple[int, Step]]) -> list[tuple[int, Step, list[bytes]]]:
        """Return the steps with their audio, copied out of the slots, which the answers will overwrite."""
        audio = []
        for slot, step in tick:
            memory, at, chunks = self._audio(slot), 0, []
            for length in step.lengths:
                chunks.append(bytes(memory[at : at + length]))
                at += length
            audio.append((slot, step, chunks))
        return audio

    def _score(self, audio: Sequence[tuple[int, Step, list[bytes]]]) -> dict[int, Answer]:
        """Decode, resample, window and infer: return the answer for each slot."""
        windows: dict[int, Answer] = {}
        together: list[tuple[int, Step, StreamProgress, list[bytes]]] = []
        for slot, step, chunks in audio:
            try:
                progress = self._progress(step)
                if progress is None:
                    windows[slot] = Forgotten()
                elif step.together and isinstance(progress, StreamProgress):
                    together.append((slot, step, progress, chunks))
                else:
                    windows[slot] = progress.finish(chunks) if step.last else progress.take(chunks)
            except Exception as error:
                windows[slot] = self._failed(step, error)
        scores = take_together([(progress, chunks) for _, _, progress, chunks in together])
        for (slot, step, _, _), scored in zip(together, scores, strict=True):
            windows[slot] = self._failed(step, scored) if isinstance(scored, Exception) else scored
        return windows

    def _progress(self, step: Step) -> Progress | None:
        if step.beginning is not None:
            self._forget(step.session)
            self._sessions[step.session] = self._begin(step.beginning)
            if len(self._sessions) > MOST_SESSIONS:
                self._sessions.popitem(last=False)[1].close()
        progress = self._sessions.get(step.session)
        if progress is not None:
            self._sessions.move_to_end(step.session)
            if step.measured and progress.meter is None:
                progress.meter = SoundMeter()
            elif not step.measured:
                progress.meter = None
            if progress.meter is not None:
                progress.meter.draws = step.drawn
        return progress

    def _begin(self, beginning: Beginning) -> Progress:
        engine = self._engines[beginning.model]
        if beginning.file:
            assert self._file is not None
            return FileProgress(engine, beginning, self._file)
        kind = WindowProgress if beginning.predicts else StreamProgress
        return kind(engine, beginning, open_file)

    def _failed(self, step: Step, error: Exception) -> Fault:
        self._forget(step.session)
        return _fault(error)

    def _forget(self, session: int) -> None:
        progress = self._sessions.pop(session, None)
        if progress is not None:
            progress.close()

    # --- the file ---------------------------------------------------------------------------------------------------

    def _from_file(self, request: Read | Segment) -> tuple[Answer, Sequence[Floats]]:
        try:
            return self._read(request) if isinstance(request, Read) else (self._score_segment(request), ())
        except Exception as error:
            return _fault(error), ()

    def _read(self, request: Read) -> tuple[Answer, Sequence[Floats]]:
        assert self._file is not None
        if request.number == 0:
            self._blocks, self._next_block = read_blocks(self._file, request), 0
        if request.number != self._next_block:
            return Forgotten(), ()
        self._next_block += 1
        return next(self._blocks, (Forgotten(), ()))

    def _score_segment(self, request: Segment) -> Answer:
        assert self._file is not None
        if self._scorer is None or request.number < self._scorer.next:
            self._scorer = SegmentScorer(self._file, request, self._engines[request.model])
        return self._scorer.scores(request.number)

    def _write(self, answers: Mapping[int, Answer], samples: Sequence[Floats] = ()) -> None:
        """Write answers, the only one of them followed by its `samples`, and send their numbers."""
        for slot, answer in answers.items():
            data, memory = messages.encode(answer), self._slots[slot]
            if len(data) > len(memory) - messages.LENGTH.size:
                data = messages.encode(Fault("the model gives more scores than one step may have", engine=True))
            messages.LENGTH.pack_into(memory, 0, len(data))
            at = 4 + len(data)
            memory[4:at] = data
            for piece in samples:
                memory[at : at + piece.nbytes] = piece.data.cast("B")
                at += piece.nbytes
        if not self._unsent:
            self._since = time.monotonic()
        self._unsent += bytes(answers)
        if not self._steps or time.monotonic() - self._since >= ANSWER_SECONDS:
            slots, self._unsent = self._unsent, b""
            with suppress(ConnectionError):  # The next read notices the end.
                self._line.send(slots)


def _fault(error: Exception) -> Fault:
    if isinstance(error, AudioError):
        return Fault(str(error), audio=True, too_long=isinstance(error, AudioTooLong))
    if isinstance(error, EngineError):
        return Fault(str(error), engine=True)
    if isinstance(error, MemoryError):
        return Fault("the analysis needs more memory than a worker may have", engine=True)
    if isinstance(error, OSError) and error.errno in REFUSALS:
        return Fault(f"the analysis tried what no worker may do: {error.strerror}", engine=True)
    return Fault(f"{type(error).__name__}: {error}", disk=error.errno if isinstance(error, OSError) else None)
