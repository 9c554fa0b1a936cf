"""The work of a worker process: reads requests from the shared memory, analyses, writes the answers there."""

import mmap
import os
import socket
from collections import OrderedDict, deque
from collections.abc import Generator, Mapping
from contextlib import suppress
from typing import BinaryIO, Final

import numpy as np

from streams.audio import decode
from streams.audio.analysis import WindowScorer, score_windows
from streams.audio.decode import AudioFile
from streams.audio.levels import SoundMeter
from streams.audio.sources import GuardedSource
from streams.audio.windows import WindowCutter
from streams.decoders import ffmpeg
from streams.decoders.confinement import REFUSALS
from streams.decoders.messages import Hello
from streams.models.protocol import Floats, SoundEngine
from streams.workers import messages
from streams.workers.messages import Answer, Beginning, Fault, Forgotten, Request, Segment, Step
from streams.workers.other_progress import SampleProgress, WindowProgress
from streams.workers.progress import Progress, StreamProgress, take_together
from topics.errors import AudioError, EngineError
from topics.geometry import SESSIONS, Geometry
from topics.media import Media

#: Sessions with state, some 27 KiB each, or 100 KiB with a second model; beyond this, the least recently used is
#: evicted.
MOST_SESSIONS: Final = 4096
#: Maximum number of steps scored together.
TOGETHER: Final = 4
#: Windows of a segment scored per turn.
SEGMENT_WINDOWS: Final = 4


def open_file(
    source: BinaryIO,
    media: Media,
    longest_s: int = decode.MAX_FILE_S,
    block_samples: int | None = None,
    owner: str | None = None,
) -> AudioFile:
    """Open a chunk in memory, of any container; raises the errors of `streams.audio.decode.open_file`."""
    guarded = GuardedSource(source)
    # Raw samples may begin like any container.
    if media.container != "raw" and ffmpeg.is_needed(guarded):
        return ffmpeg.open_file(guarded, media, longest_s, block_samples or decode.BLOCK_SAMPLES)
    return decode.open_file(source, media, longest_s, block_samples)


class Worker:
    """Answers one parent's requests; steps and segments take turns. One thread at a time."""

    def __init__(self, line: socket.socket, memory: mmap.mmap, engines: Mapping[str, SoundEngine]) -> None:
        self._line = line
        self._slots = messages.slots_of(memory)
        self._engines = engines
        self._sessions: OrderedDict[int, Progress] = OrderedDict()
        self._steps: deque[tuple[int, Step]] = deque()
        #: Slot and work of each segment, waiting or in progress; only the first may be in progress.
        self._segments: deque[tuple[int, Generator[None, None, bytes]]] = deque()

    def serve(self, filtered: bool) -> None:
        """Send the greeting, then answer until the parent closes its end."""
        self._line.send(messages.encode(Hello(os.getpid(), filtered, tuple(self._engines))))
        while self._receive():
            if self._steps:
                self._take_steps()
            if self._segments:
                self._advance()

    def _receive(self) -> bool:
        """Take all arrived requests; wait for one only if idle. Return False at the end."""
        while True:
            busy = self._steps or self._segments
            try:
                slots = self._line.recv(messages.LINE_BYTES, socket.MSG_DONTWAIT if busy else 0)
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
        if isinstance(message, Segment):
            self._segments.append((slot, self._score_segment(slot, message)))
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

    def _take_steps(self) -> None:
        """Take the next step, or several that may be scored together."""
        taken = [self._steps.popleft()]
        while taken[0][1].together and self._steps and self._steps[0][1].together and len(taken) < TOGETHER:
            taken.append(self._steps.popleft())
        answers: dict[int, Answer] = {}
        together: list[tuple[int, Step, StreamProgress]] = []
        for slot, step in taken:
            try:
                progress = self._progress(step)
            except Exception as error:
                answers[slot] = _fault(error)
                continue
            if progress is None:
                answers[slot] = Forgotten()
            elif step.together and isinstance(progress, StreamProgress):
                together.append((slot, step, progress))
            else:
                answers[slot] = self._take_alone(slot, step, progress)
        if together:
            steps = [(progress, self._chunks(slot, step)) for slot, step, progress in together]
            for (slot, step, _), scored in zip(together, take_together(steps), strict=True):
                answers[slot] = self._failed(step, scored) if isinstance(scored, Exception) else scored
        self._answer(answers)

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
        engine, geometry = self._engines[beginning.model], Geometry(beginning.window_ms, beginning.hop_ms)
        if beginning.decoded:
            return SampleProgress(engine, geometry, beginning.cursor.rate, beginning.windows, beginning.hearing)
        kind = WindowProgress if beginning.predicts else StreamProgress
        at = beginning.cursor, beginning.windows
        return kind(engine, geometry, beginning.media, *at, open_file, beginning.hearing)

    def _take_alone(self, slot: int, step: Step, progress: Progress) -> Answer:
        try:
            chunks = self._chunks(slot, step)
            return progress.finish(chunks, not step.broken) if step.last else progress.take(chunks)
        except Exception as error:
            return self._failed(step, error)

    def _chunks(self, slot: int, step: Step) -> list[bytes]:
        """Copy the audio out of the slot, which the answer will overwrite."""
        audio, at, chunks = self._audio(slot), 0, []
        for length in step.lengths:
            chunks.append(bytes(audio[at : at + length]))
            at += length
        return chunks

    def _failed(self, step: Step, error: Exception) -> Fault:
        self._forget(step.session)
        return _fault(error)

    def _forget(self, session: int) -> None:
        progress = self._sessions.pop(session, None)
        if progress is not None:
            progress.close()

    # --- segments ---------------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        slot, work = self._segments[0]
        try:
            next(work)
            return
        except StopIteration as end:
            answer: Answer = messages.SegmentScores(end.value)
        except Exception as error:
            answer = _fault(error)
        self._segments.popleft()
        self._answer({slot: answer})

    def _score_segment(self, slot: int, segment: Segment) -> Generator[None, None, bytes]:
        """Score a segment, yielding after each batch of windows; return the bytes for `SegmentScores`."""
        samples = np.frombuffer(bytearray(self._audio(slot)[: segment.length]), np.float32)
        engine = self._engines[segment.model]
        cutter = WindowCutter(
            engine.manifest, SESSIONS, segment.rate, recording=True, at=segment.at, first_window=segment.first
        )
        scorer = WindowScorer(engine, recording=True, hearing=segment.hearing)
        windows = list(cutter.feed(samples))
        if segment.last:
            windows += cutter.finish(whole=not segment.broken)
        scores: list[Floats] = []
        for start in range(0, len(windows), SEGMENT_WINDOWS):
            if start:
                yield
            batch = score_windows(engine, windows[start : start + SEGMENT_WINDOWS])
            scores += [scorer.scores(window) for window in batch]
        return b"".join([row.tobytes() for row in scores])

    def _answer(self, answers: Mapping[int, Answer]) -> None:
        for slot, answer in answers.items():
            data, memory = messages.encode(answer), self._slots[slot]
            if len(data) > len(memory) - messages.LENGTH.size:
                data = messages.encode(Fault("the model gives more scores than one step may have", engine=True))
            messages.LENGTH.pack_into(memory, 0, len(data))
            memory[4 : 4 + len(data)] = data
        with suppress(ConnectionError):  # The next read notices the end.
            self._line.send(bytes(answers))


def _fault(error: Exception) -> Fault:
    if isinstance(error, AudioError | EngineError):
        return Fault(str(error), isinstance(error, AudioError), isinstance(error, EngineError))
    if isinstance(error, MemoryError):
        return Fault("the analysis needs more memory than a worker may have", engine=True)
    if isinstance(error, OSError) and error.errno in REFUSALS:
        return Fault(f"the analysis tried what no worker may do: {error.strerror}", engine=True)
    return Fault(f"{type(error).__name__}: {error}")
