"""Turns one session's audio into windows, in a worker process.

A step holds at most `STEP_SAMPLES` samples plus a block, however long a chunk is; later steps decode the rest of a long
chunk.
"""

import io
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final, ParamSpec, Protocol, TypeVar

import msgspec
from numpy import concatenate, empty, float32

from streams.audio import container, decode, pcm, wav
from streams.audio.analysis import Analysis, score_windows
from streams.audio.decode import AudioFile, DecodedAudio, OpenFile
from streams.audio.levels import SoundMeter
from streams.audio.windows import AnalysisWindow
from streams.models.protocol import Floats, SoundEngine
from streams.workers.messages import Beginning, ScoredWindows
from topics.errors import AudioError, NoAudio
from topics.sessions.records import Cursor

P = ParamSpec("P")
T = TypeVar("T")

#: Samples that one step decodes: 2 MiB, more than sixteen half-second chunks at 48 kHz.
STEP_SAMPLES: Final = 1 << 19
#: Seconds of one chunk that one step decodes: as much as sixteen chunks, since other sessions wait meanwhile.
STEP_S: Final = 8
#: Samples of a chunk's block, over all channels; a step may exceed its limit by one block.
BLOCK_SAMPLES: Final = 1 << 15
PIECE: Final = (
    ". Each chunk of a stream must be a file of its own. To send one file in pieces, open a session of type file; "
    "to send live audio, send raw PCM (audio/x-raw)"
)


class Progress(Protocol):
    """One session's analysis. One thread at a time."""

    #: Number of chunks taken: all with a lower sequence number.
    taken: int
    #: Measures the scored audio while there are listeners.
    meter: SoundMeter | None

    @property
    def reading(self) -> bool:
        """Whether a chunk is open; the next step continues it and takes no others."""

    def take(self, chunks: Sequence[bytes]) -> ScoredWindows:
        """Analyse the next audio in order, up to the first chunk that does not decode or to the limit of a step."""

    def finish(self, chunks: Sequence[bytes] = (), whole: bool = True) -> ScoredWindows:
        """Analyse the rest; no audio follows, or the audio is not `whole` because the rest cannot be read."""

    def close(self) -> None:
        """Close the open chunk, if any. Idempotent."""


def scored(progress: Progress, first: int, packed: bytes, cursor: Cursor, error: str | None = None) -> ScoredWindows:
    """Return the windows of a step with its measures."""
    measures = None if progress.meter is None else progress.meter.fresh()
    return ScoredWindows(first, packed, cursor, progress.taken, progress.reading, error, measures)


class ChunkProgress:
    """What a session of chunks has in a worker, whether they are a stream or windows. One thread at a time."""

    meter: SoundMeter | None = None

    def __init__(self, engine: SoundEngine, beginning: Beginning, open_file: OpenFile) -> None:
        """Continue at the cursor of a beginning, which follows its windows."""
        self.engine = engine
        self.geometry = beginning.geometry
        self.media = beginning.media
        self.cursor = beginning.cursor
        self.taken = beginning.cursor.chunks
        self._hearing = beginning.hearing
        self._open_file = open_file

    def open_chunk(self, data: bytes) -> AudioFile | DecodedAudio:
        """Return a chunk decoded if it is small and safe to decode in this process, else opened.

        Raises:
            AudioError: it does not decode as declared, holds no audio, or exceeds a limit.
        """
        declared = self.media
        if declared.container == "raw" and decode.fits_a_block(data, declared):
            return decode.decode_block(data, declared)
        if declared.container in ("wav", "any") and len(data) <= decode.BLOCK_SAMPLES and wav.looks_plain(data):
            plain = wav.read_plain(data)
            if plain is not None:
                return plain
        return self._open_file(
            io.BytesIO(data), declared, decode.MAX_CHUNK_S, block_samples=min(BLOCK_SAMPLES, decode.BLOCK_SAMPLES)
        )


class StreamProgress(ChunkProgress):
    """A live stream: each chunk decodes by itself, and windows overlap chunks. One thread at a time."""

    def __init__(self, engine: SoundEngine, beginning: Beginning, open_file: OpenFile) -> None:
        super().__init__(engine, beginning, open_file)
        media = beginning.media
        #: After a restart, chunks are fed again from the first one still needed; no window is returned twice.
        self.taken = self.cursor.keep
        self._first = beginning.windows
        #: Chunks; of the first unit that begins in each, the position in samples, and the place in the chunk in bytes.
        self._starts: deque[tuple[int, int, int]] = deque()
        #: Bytes that are decoded together, though chunks may cut them: of raw PCM, a sample or a block that is mixed.
        self._unit = media.frame_bytes * (pcm.mix_frames(media.rate) if media.channels > 1 else 1)
        #: The beginning of a unit, from earlier chunks; the end of a unit to skip in the next chunk after a restart.
        self._rest, self._skip = b"", self.cursor.skip
        #: The current chunk begins like no container.
        self._is_piece = False
        #: The beginning of a unit in the current chunk, and the place (bytes) of the first unit that begins in it.
        self._tail, self._start = b"", 0
        self._analysis: Analysis | None = None
        #: Decoded samples of this step that are not scored yet, and why there are no more.
        self._decoded: list[Floats] = []
        self._samples = 0
        self._error: str | None = None
        #: The open chunk, its blocks, and the number of its frames read.
        self._open: AudioFile | None = None
        self._blocks: Iterator[Floats] = iter(())
        self._at = 0
        #: Frames of it decoded by earlier steps, if it is longer than a step.
        self._earlier = 0

    @property
    def reading(self) -> bool:
        return self._open is not None

    def take(self, chunks: Sequence[bytes]) -> ScoredWindows:
        samples = self._decode(chunks)
        return self._scored(b"" if self._analysis is None else self._analysis.feed(samples))

    def cut(self, chunks: Sequence[bytes]) -> list[AnalysisWindow]:
        """Decode the next chunks and return the windows they complete; score them for `take_scored`."""
        samples = self._decode(chunks)
        return [] if self._analysis is None else self._analysis.cut(samples)

    def take_scored(self, windows: Sequence[AnalysisWindow]) -> ScoredWindows:
        return self._scored(b"" if self._analysis is None else self._analysis.take(windows))

    def _decode(self, chunks: Sequence[bytes]) -> Floats:
        """Return the samples of the next chunks joined, float32[n]: large pieces cost the front end less."""
        try:
            if self._open is not None:
                self._read()
            else:
                for data in chunks:
                    if not self._take(data):
                        break
        except AudioError as cause:
            self._error = f"chunk {self.taken}: {cause}{PIECE if self._is_piece else ''}"
            self.close()
        decoded = self._decoded
        self._decoded, self._samples = [], 0
        samples = decoded[0] if len(decoded) == 1 else concatenate(decoded) if decoded else empty(0, float32)
        if self.meter is not None and self._analysis is not None:
            self.meter.feed(self.cursor.rate, self._analysis.position, samples)
        return samples

    def _scored(self, packed: bytes) -> ScoredWindows:
        first, error = self._first, self._error
        self._error = None
        if self._analysis is not None:
            self._first = self._analysis.next_window
        return scored(self, first, packed, self._next_cursor(), error)

    def close(self) -> None:
        audio, self._open = self._open, None
        if audio is not None:
            audio.close()

    def _take(self, data: bytes) -> bool:
        """Decode the next chunk within this step's limit; return whether another may follow."""
        data = self._units(data)
        if not data:  # It completes no unit, or all of it lies beyond the last whole frame of the session.
            self._end_chunk()
            return True
        self._is_piece = self.media.container != "raw" and container.detect(data) is None
        try:
            audio = self.open_chunk(data)
        except NoAudio:  # A file's header, which recorders write first: time does not go on.
            self._end_chunk()
            return True
        if isinstance(audio, DecodedAudio):
            self._begin(audio.rate)
            self._add(audio.samples)
            self._end_chunk()
            return self._samples < STEP_SAMPLES
        self._open, self._blocks, self._at = audio, audio.blocks(), 0
        return self._read()

    def _units(self, data: bytes) -> bytes:
        """Return the units that the next chunk completes."""
        self._tail, self._start = b"", self._skip
        if self._unit == 1 or not (self._rest or self._skip or len(data) % self._unit):
            return data
        joined = self._rest + data[self._skip :]
        whole = len(joined) - len(joined) % self._unit
        self._tail = joined[whole:]
        if self._rest:
            self._start = min(self._unit - len(self._rest), len(data))
        if data and not whole:
            self._begin(self.media.rate)
        return joined[:whole]

    def _end_chunk(self) -> None:
        self.taken += 1
        self._rest, self._skip = self._tail, 0

    def _read(self) -> bool:
        """Read the open chunk within this step's limit; return whether another may follow."""
        assert self._open is not None
        blocks: list[Floats] = []
        ended, most = True, min(STEP_SAMPLES, STEP_S * self._open.rate)
        for block in self._blocks:
            self._at += len(block)
            if self._at > decode.MAX_CHUNK_FRAMES:
                raise AudioError(f"one chunk holds more than {decode.MAX_CHUNK_FRAMES} frames; use shorter chunks")
            # Skip blocks decoded before the chunk was closed; they are cut the same way again.
            if self._at > self._earlier:
                blocks.append(block)
            if self._at - self._earlier + self._samples > most:
                ended = False
                break
        if not ended and self._samples:
            # Leave it for the next step, so that a chunk that fits into a step is decoded whole before it is scored.
            self.close()
            return False
        if not self._earlier:
            self._begin(self._open.rate)
        for block in blocks:
            self._add(block)
        self._earlier = 0 if ended else self._at
        if ended:
            self.close()
            self._end_chunk()
        return ended

    def _begin(self, rate: int) -> None:
        analysis = self._analysis
        if analysis is None:
            at = self.cursor.keep_at
            analysis = self._analysis = Analysis(
                self.engine, self.geometry, rate, at=at, first_window=self._first, hearing=self._hearing
            )
            self.cursor = msgspec.structs.replace(self.cursor, rate=self.cursor.rate or rate)
        if rate != self.cursor.rate:
            raise AudioError(f"the sample rate is {rate} Hz, the stream began with {self.cursor.rate} Hz")
        begun = self._unit // self.media.frame_bytes if self._rest else 0
        self._starts.append((self.taken, analysis.position + self._samples + begun, self._start))

    def _add(self, samples: Floats) -> None:
        self._decoded.append(samples)
        self._samples += len(samples)

    def _next_cursor(self) -> Cursor:
        """Return the cursor after this step; it keeps chunks from the first sample still needed."""
        if self._analysis is None:
            return self.cursor
        needed = self._analysis.needed_from
        while len(self._starts) > 1 and self._starts[1][1] <= needed:
            self._starts.popleft()
        keep, keep_at, skip = self._starts[0]
        self.cursor = Cursor(max(self.taken, self.cursor.chunks), keep, keep_at, self.cursor.rate, skip)
        return self.cursor

    def finish(self, chunks: Sequence[bytes] = (), whole: bool = True) -> ScoredWindows:
        """Analyse the tail, after all chunks were taken."""
        first, packed = self._first, b""
        if self._analysis is not None:
            # A sample that the end cuts is dropped.
            if rest := self._rest[: len(self._rest) // self.media.frame_bytes * self.media.frame_bytes]:
                samples = decode.decode_block(rest, self.media).samples
                if self.meter is not None:
                    self.meter.feed(self.cursor.rate, self._analysis.position, samples)
                packed = self._analysis.feed(samples)
            packed += self._analysis.finish()
        return scored(self, first, packed, Cursor(self.taken, self.taken, 0, self.cursor.rate))


def take_together(steps: Sequence[tuple[StreamProgress, Sequence[bytes]]]) -> list[ScoredWindows | Exception]:
    """Take the next chunks of several streams; scoring their windows together takes a model less time.

    A stream's failure is returned for that stream only.
    """
    cuts = [_attempt(progress.cut, chunks) for progress, chunks in steps]
    scored: Iterator[AnalysisWindow] | None = None
    if len(steps) > 1 and len({progress.engine for progress, _ in steps}) == 1:
        engine = steps[0][0].engine
        windows = [window for cut in cuts if not isinstance(cut, Exception) for window in cut]
        # One bad patch fails the whole batch, so score each stream by itself then.
        with suppress(Exception):
            scored = iter(score_windows(engine, windows))
    results: list[ScoredWindows | Exception] = []
    for (progress, _), cut in zip(steps, cuts, strict=True):
        if isinstance(cut, Exception):
            results.append(cut)
        elif scored is None:
            results.append(_attempt(_score_alone, progress, cut))
        else:
            results.append(_attempt(progress.take_scored, list(islice(scored, len(cut)))))
    return results


def _attempt(work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T | Exception:
    try:
        return work(*arguments, **named)
    except Exception as error:
        return error


def _score_alone(progress: StreamProgress, windows: list[AnalysisWindow]) -> ScoredWindows:
    return progress.take_scored(score_windows(progress.engine, windows))
