"""What a worker does with its file: decodes it, or also scores it, a piece for each request."""

import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

import msgspec
import numpy as np

from streams.audio import decode
from streams.audio.analysis import NOTHING, Analysis, WindowScorer, score_windows
from streams.audio.decode import BROKEN_LIMIT, MAX_FILE_S, AudioFile
from streams.audio.levels import SoundMeter
from streams.audio.raw_check import HEAD, check_beginning
from streams.audio.sources import DescriptorSource
from streams.audio.windows import WindowCutter, WindowGrid
from streams.models.manifest import Manifest
from streams.models.protocol import Floats, SoundEngine
from streams.processes.confinement import REFUSALS
from streams.workers.messages import (
    Beginning,
    Block,
    Header,
    Read,
    RecordingEnd,
    ScoredWindows,
    Segment,
    SegmentScores,
)
from streams.workers.progress import scored
from topics.errors import AudioError
from topics.geometry import SESSIONS
from topics.hearing import Hearing
from topics.media import Media
from topics.sessions.records import Cursor

T = TypeVar("T")

#: Samples decoded at a time, over all channels.
BLOCK_SAMPLES: Final = 1 << 17
#: Samples of one step of a file session; it may exceed this by a block.
STEP_SAMPLES: Final = 1 << 18
#: Windows of a segment, fewer at high sample rates: enough to make the hand-over and the leading audio cheap.
SEGMENT_WINDOWS: Final = 32
#: Samples of a segment, unless a second model hears more at once.
SEGMENT_SAMPLES: Final = 1 << 18
#: Windows of a segment scored together.
TOGETHER: Final = 4
#: Samples decoded for one request at most: some of the segments before it are another worker's.
AHEAD_SAMPLES: Final = 1 << 24


@contextmanager
def decoding() -> Iterator[None]:
    """Blame the audio for what a worker may not do.

    Raises:
        AudioError: decoding needs more memory or other rights than a worker has.
    """
    try:
        yield
    except MemoryError:
        raise AudioError(BROKEN_LIMIT) from None
    except OSError as error:
        if error.errno in REFUSALS:
            raise AudioError(BROKEN_LIMIT) from None
        raise


def open_file(source: DescriptorSource, media: Media, longest_s: int, block_samples: int) -> AudioFile:
    """Open a file like `decode.open_file`; errors of `decoding` are raised here and by its blocks."""
    with decoding():
        audio = decode.open_file(source, media, longest_s, block_samples)
    audio.unlimited = _guarded(audio.unlimited)
    return audio


def _guarded(blocks: Iterator[T]) -> Iterator[T]:
    with decoding():
        yield from blocks


def read_blocks(file: int, request: Read) -> Iterator[tuple[Block, Sequence[Floats]]]:
    """Decode a file, given as a descriptor; yield blocks with the pieces of their samples.

    Raises the errors of `decode.open_file` and `AudioFile.blocks`.
    """
    source = DescriptorSource(file)
    audio = open_file(source, request.media, request.longest_s, request.block_samples)
    header: Header | None = Header(audio.rate, audio.channels, audio.frames, audio.kind)
    silence, held, size = 0, list[Floats](), 0

    def block(notes: tuple[str, ...] | None = None) -> tuple[Block, Sequence[Floats]]:
        return Block(header, silence, 4 * size, source.tell(), notes), held

    try:
        for piece in audio.unlimited:
            # Until the next piece does not fit, or the file ends: a short file takes one message.
            if size and (isinstance(piece, int) or size + len(piece) > request.block_samples):
                yield block()
                header, silence, held, size = None, 0, [], 0
            if isinstance(piece, int):
                silence += piece
            else:
                held.append(piece)
                size += len(piece)
    except AudioError:
        if header or silence or size:
            yield block()
        raise
    yield block(tuple(audio.notes))


class FileProgress:
    """A file session, analysed step by step. One thread at a time."""

    meter: SoundMeter | None = None
    taken = 0
    reading = True

    def __init__(self, engine: SoundEngine, beginning: Beginning, file: int) -> None:
        """Begin at the first sample of a file, given as a descriptor, but skip the windows that are settled.

        Raises:
            AudioError: it cannot be opened.
        """
        source, media = DescriptorSource(file), beginning.media
        if media.container == "raw":
            check_beginning(media, source.read(HEAD))
            source.seek(0)
        self._audio = open_file(source, media, MAX_FILE_S, BLOCK_SAMPLES)
        self._blocks = self._audio.blocks()
        self._geometry = beginning.geometry
        self._analysis = Analysis(
            engine,
            self._geometry,
            self._audio.rate,
            recording=True,
            first_window=beginning.windows,
            hearing=beginning.hearing,
        )

    def take(self, chunks: Sequence[bytes] = ()) -> ScoredWindows:
        """Score the windows of the next samples. Damage is an `error` of the last step."""
        analysis, rate, first = self._analysis, self._audio.rate, self._analysis.next_window
        samples, error = self._read()
        silent = self._geometry.within(self._audio.gaps, rate)
        analysis.skip(silent)
        if self.meter is not None:
            self.meter.feed(rate, analysis.position, samples)
        packed = analysis.feed(samples)
        if not self.reading:
            packed += analysis.finish(whole=error is None)
        return msgspec.structs.replace(scored(self, first, packed, Cursor(rate=rate), error), silent=silent)

    def _read(self) -> tuple[Floats, str | None]:
        blocks, size = [np.empty(0, np.float32)], 0
        try:
            while size < STEP_SAMPLES:
                blocks.append(next(self._blocks))
                size += len(blocks[-1])
        except StopIteration:
            self.reading = False
        except AudioError as error:
            self.reading = False
            return np.concatenate(blocks), str(error)
        return blocks[1] if len(blocks) == 2 else np.concatenate(blocks), None

    def finish(self, chunks: Sequence[bytes] = (), whole: bool = True) -> ScoredWindows:
        return self.take()

    def close(self) -> None:
        self._audio.close()


class Cut(msgspec.Struct, frozen=True):
    """A segment with all samples that its windows depend on: float32[n], the first of them at position `at`."""

    samples: Floats
    at: int
    first_window: int
    #: The recording ends here, or breaks off.
    last: bool = False
    whole: bool = True
    #: Windows (first, end) in gaps of the recording.
    silent: tuple[tuple[int, int], ...] = ()


class SegmentCutter:
    """Cuts a recording into segments whose windows can be scored independently. One thread at a time."""

    def __init__(self, model: Manifest, rate: int) -> None:
        """Cut audio of `rate` Hz for a model.

        Raises:
            EngineError: the model's patches do not fit the windows.
        """
        self._grid = WindowGrid(model, SESSIONS, rate, recording=True)
        # Whole blocks of a second model, so that it hears none twice.
        block = 1 if model.second is None else model.second.recording.hop_ms // SESSIONS.hop_ms
        windows = min(SEGMENT_WINDOWS, SEGMENT_SAMPLES * 1000 // (rate * SESSIONS.hop_ms))
        self._windows = max(1, windows // block) * block
        self._first = 0
        #: Position of the first sample held, and the samples from there.
        self._at = 0
        self._held: list[Floats] = []
        self.position = 0

    def feed(self, samples: Floats) -> Generator[Cut, None, None]:
        """Take the next samples, float32[n], and yield the segments whose windows are all complete."""
        self._held.append(samples)
        self.position += len(samples)
        while self._grid.is_complete(self._first + self._windows, self.position):
            end = self._grid.end_of(self._first + self._windows - 1)
            yield self._cut(self._grid.first_input(self._first), end)
            self._first += self._windows
            self._drop(self._grid.kept_from(self._first))

    def finish(self, whole: bool) -> Cut:
        """Return the last segment; the recording ends here or, if not `whole`, broke off."""
        cut = self._cut(self._grid.first_input(self._first, self.position), self.position)
        return msgspec.structs.replace(cut, last=True, whole=whole)

    def _cut(self, start: int, end: int) -> Cut:
        samples = np.concatenate([np.empty(0, np.float32), *self._held])
        self._held = [samples]
        # A recording shorter than a window is held from its beginning and may be empty.
        start = max(start, self._at)
        return Cut(samples[start - self._at : end - self._at], start, self._first)

    def _drop(self, position: int) -> None:
        (samples,) = self._held
        self._held, self._at = [samples[position - self._at :]], position


def score_cut(engine: SoundEngine, cut: Cut, rate: int, hearing: Hearing = NOTHING) -> bytes:
    """Return the scores of a segment's windows, float32[windows, tags] and the project's own columns."""
    cutter = WindowCutter(engine.manifest, SESSIONS, rate, recording=True, at=cut.at, first_window=cut.first_window)
    cutter.silent = cut.silent
    scorer = WindowScorer(engine, recording=True, hearing=hearing)
    windows = list(cutter.feed(cut.samples))
    if cut.last:
        windows += cutter.finish(cut.whole)
    rows: list[bytes] = []
    for start in range(0, len(windows), TOGETHER):
        batch = score_windows(engine, windows[start : start + TOGETHER])
        rows += [scorer.scores(window).tobytes() for window in batch]
    return b"".join(rows)


class SegmentScorer:
    """Decodes a recording, and scores those of its segments that are asked for. One thread at a time."""

    def __init__(self, file: int, request: Segment, engine: SoundEngine) -> None:
        """Begin a file, given as a descriptor."""
        self._source = DescriptorSource(file)
        self._size = self._source.seek(0, os.SEEK_END)
        self._source.seek(0)
        self._request = request
        self._engine = engine
        #: Number of the next segment.
        self.next = 0
        self._rate = 0
        self._position = 0
        self._end = RecordingEnd(0, None, None, 0)
        self._cuts = self._cut()

    def scores(self, number: int) -> SegmentScores:
        """Score a segment that was not passed yet, or decode up to it in several calls.

        Raises:
            EngineError: the model failed, or its patches do not fit the windows.
            OSError: the file cannot be read.
        """
        until = self._position + AHEAD_SAMPLES
        for cut in self._cuts:
            if cut is not None:
                self.next += 1
            if cut is not None and self.next > number:
                scores = score_cut(self._engine, cut, self._rate, self._request.hearing)
                return SegmentScores(scores, self._share)
            if self._position >= until:
                return SegmentScores(None, self._share)
        return SegmentScores(None, 1.0, self._end)

    @property
    def _share(self) -> float:
        return self._source.tell() / max(1, self._size)

    def _cut(self) -> Iterator[Cut | None]:
        """Yield the segments, and None after each block."""
        try:
            audio = open_file(self._source, self._request.media, MAX_FILE_S, BLOCK_SAMPLES)
        except AudioError as error:
            self._end = RecordingEnd(0, str(error), None, 0)
            return
        self._rate = audio.rate
        cutter, fault = SegmentCutter(self._engine.manifest, audio.rate), None
        try:
            for samples in audio.blocks():
                for cut in cutter.feed(samples):
                    yield self._marked(cut, audio)
                self._position = cutter.position
                yield None
        except AudioError as error:
            fault = audio.fault(error)
        # A fraction of a millisecond is audio too; 0 stands for an unknown length.
        audio_ms = max(1, cutter.position * 1000 // audio.rate) if cutter.position else 0
        warning = None if fault else audio.warning
        self._end = RecordingEnd(audio_ms, fault, warning, audio.silence_ms)
        yield self._marked(cutter.finish(whole=fault is None), audio)

    def _marked(self, cut: Cut, audio: AudioFile) -> Cut:
        """Name the windows of a segment that lie in gaps of the audio."""
        near = [gap for gap in audio.gaps if gap[0] < cut.at + len(cut.samples)]
        return msgspec.structs.replace(cut, silent=SESSIONS.within(near, audio.rate, cut.first_window))
