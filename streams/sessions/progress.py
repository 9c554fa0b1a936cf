"""How far the analysis of one session is: objects that turn chunks into windows, in a worker thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import BinaryIO, Final, Protocol

import msgspec
from numpy import concatenate, float32
from numpy.typing import NDArray

from streams.audio import decode
from streams.audio.analysis import Analysis, score_alone
from streams.models.protocol import SoundEngine
from topics.errors import AudioError
from topics.geometry import Geometry
from topics.media import Media
from topics.sessions.records import Cursor
from topics.sessions.rules import SessionHead

#: Windows that one step of a file may gather before it hands them on.
FILE_STEP_WINDOWS: Final = 64


class Scores(msgspec.Struct, frozen=True):
    """Windows that one step produced, and where the analysis stands after it."""

    first: int
    packed: bytes
    cursor: Cursor
    #: Why the audio after these windows cannot be analysed.
    error: str | None = None


class Progress(Protocol):
    """One session's analysis."""

    #: Chunks taken so far: all with a sequence below this.
    taken: int

    def take(self, chunks: Sequence[bytes]) -> Scores:
        """Analyse the next chunks in order, up to the first that does not decode."""
        ...

    def finish(self) -> Scores:
        """Analyse what is left once no chunk will follow."""
        ...


class StreamProgress:
    """A live stream: every chunk can be decoded alone, and windows overlap chunks."""

    def __init__(self, engine: SoundEngine, geometry: Geometry, media: Media, head: SessionHead) -> None:
        self.engine = engine
        self.geometry = geometry
        self.media = media
        self.cursor = head.cursor
        #: After a restart, chunks from the first one that is still needed are fed again; they give no window twice.
        self.taken = head.cursor.keep
        self._first = head.windows
        self._starts: deque[tuple[int, int]] = deque()
        self._analysis: Analysis | None = None

    def take(self, chunks: Sequence[bytes]) -> Scores:
        """Analyse the next chunks, together: a front end works better on more samples at a time."""
        first, error = self._first, None
        pieces: list[NDArray[float32]] = []
        for data in chunks:
            try:
                pieces.append(self._samples(data, sum(map(len, pieces))))
            except AudioError as cause:
                error = f"chunk {self.taken}: {cause}"
                break
        if self._analysis is None or not pieces:
            return Scores(first, b"", self._next_cursor(), error)
        windows = self._analysis.feed(pieces[0] if len(pieces) == 1 else concatenate(pieces))
        self._first = self._analysis.next_window
        return Scores(first, windows.packed, self._next_cursor(), error)

    def _samples(self, data: bytes, before: int) -> NDArray[float32]:
        """Return the samples of the next chunk, which begins `before` samples after what was analysed."""
        pcm = decode.decode_chunk(data, self.media)
        analysis = self._analysis
        if analysis is None:
            at = self.cursor.keep_at
            analysis = self._analysis = Analysis(self.engine, self.geometry, pcm.rate, at=at, first_window=self._first)
            self.cursor = msgspec.structs.replace(self.cursor, rate=self.cursor.rate or pcm.rate)
        if pcm.rate != self.cursor.rate:
            raise AudioError(f"the sample rate is {pcm.rate} Hz, the stream began with {self.cursor.rate} Hz")
        self._starts.append((self.taken, analysis.position + before))
        self.taken += 1
        return pcm.samples

    def _next_cursor(self) -> Cursor:
        """Return the cursor after this step; it keeps chunks from the one that holds the first sample still needed."""
        if self._analysis is None:
            return self.cursor
        needed = self._analysis.needed_from
        while len(self._starts) > 1 and self._starts[1][1] <= needed:
            self._starts.popleft()
        keep, keep_at = self._starts[0]
        self.cursor = Cursor(max(self.taken, self.cursor.chunks), keep, keep_at, self.cursor.rate)
        return self.cursor

    def finish(self) -> Scores:
        """Analyse the tail."""
        first = self._first
        packed = b"" if self._analysis is None else self._analysis.finish().packed
        return Scores(first, packed, Cursor(self.taken, self.taken, 0, self.cursor.rate))


class WindowProgress:
    """A session fed by `/predict`: each chunk is one independent window."""

    def __init__(self, engine: SoundEngine, geometry: Geometry, media: Media, head: SessionHead) -> None:
        self.engine = engine
        self.geometry = geometry
        self.media = media
        self.taken = head.cursor.chunks

    def take(self, chunks: Sequence[bytes]) -> Scores:
        """Score the next chunks, a window each."""
        first, packed = self.taken, b""
        for data in chunks:
            try:
                packed += score_alone(self.engine, self.geometry, decode.decode_chunk(data, self.media))
            except AudioError as error:
                return Scores(first, packed, Cursor(self.taken, self.taken), f"window {self.taken}: {error}")
            self.taken += 1
        return Scores(first, packed, Cursor(self.taken, self.taken))

    def finish(self) -> Scores:
        """Nothing is left over."""
        return Scores(self.taken, b"", Cursor(self.taken, self.taken))


class FileProgress:
    """A whole file, decoded from a spool in bounded memory, a step at a time."""

    def __init__(
        self, engine: SoundEngine, geometry: Geometry, media: Media, head: SessionHead, spool: BinaryIO
    ) -> None:
        self.taken = head.next
        self.ended = False
        self._spool = spool
        self._audio = decode.open_file(spool, media)
        self._blocks: Iterator[NDArray[float32]] = self._audio.blocks()
        self._analysis = Analysis(engine, geometry, self._audio.rate, first_window=head.windows)
        self._first = head.windows

    def step(self, tags: int) -> Scores:
        """Return some more windows; `ended` is True once these are the last."""
        packed, error = b"", None
        try:
            while len(packed) < FILE_STEP_WINDOWS * tags and not self.ended:
                packed += self._next_block()
        except AudioError as cause:
            error, self.ended = str(cause), True
        first = self._first
        self._first += len(packed) // tags
        chunks = self.taken if self.ended else 0
        return Scores(first, packed, Cursor(chunks, chunks, 0, self._audio.rate), error)

    def _next_block(self) -> bytes:
        samples = next(self._blocks, None)
        if samples is None:
            self.ended = True
            return self._analysis.finish().packed
        return self._analysis.feed(samples).packed

    def close(self) -> None:
        """Give the spool back; allowed twice."""
        self._spool.close()
