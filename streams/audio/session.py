"""The analysis of one stream or file: samples in, scored windows out.

Let N be the length of the audio in samples of the model's rate. Window i covers [i * hop, i * hop + window). Window 0
exists when there is audio; window i exists when 25 ms of audio or more lie after the end of window i - 1. So windows
cover all audio, the last one filled up with zeros, for streams and files alike. A window is the mean of its patches,
one a second; patches other than its first count only when they hold 25 ms of audio. A window whose patches are complete
is given at once: the rule above is met by then, because its last patch reaches 25 ms past the end of the window before
(`WindowCutter.__init__` checks it).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from streams.audio.decode import DecodedAudio
from streams.audio.framing import Framer
from streams.models.manifest import LogMel, Waveform
from streams.models.packing import pack
from streams.models.protocol import Floats, SoundEngine
from topics.errors import EngineError
from topics.geometry import PATCH_MS, SHORTEST_TAIL_MS, Geometry

#: Seconds of audio that are worked on at a time, however much is fed at once.
BLOCK_S = 8


class ScoredWindows(msgspec.Struct, frozen=True):
    """Scored windows in order, as `topics.scores` packs them: `count` times one byte a tag."""

    first: int
    count: int
    packed: bytes


class AnalysisWindow(msgspec.Struct, frozen=True):
    """A window that all audio it needs is there for."""

    number: int
    #: The patches that it is the mean of.
    patches: tuple[int, ...]
    #: Those of its patches that no window before it has: their rows, or once they are scored, their scores.
    fresh: tuple[tuple[int, Floats], ...]


class WindowCutter:
    """The windows of one stream before they are scored; each patch is given once."""

    def __init__(
        self, front: LogMel | Waveform, geometry: Geometry, rate: int, *, at: int = 0, first_window: int = 0
    ) -> None:
        """Begin with source sample `at` (of `rate` Hz) and window `first_window`; raises as `Analysis` does."""
        self._geometry = geometry
        self._framer = Framer(front, geometry.hop_ms, rate, at=at, first_patch=first_window)
        self._tail = front.sample_rate * SHORTEST_TAIL_MS // 1000
        if front.samples < front.sample_rate * (PATCH_MS - geometry.hop_ms) // 1000 + self._tail:
            raise EngineError(
                f"patches of {front.samples} samples are too short for windows every {geometry.hop_ms} ms"
            )
        self._block = rate * BLOCK_S
        self.next_window = first_window
        #: Patches that were given and that a later window has too.
        self._given: set[int] = set()

    @property
    def position(self) -> int:
        """Source samples so far, counted from the stream's beginning."""
        return self._framer.position

    @property
    def needed_from(self) -> int:
        """Position of the first source sample that the next window depends on."""
        return self._framer.needed(self.next_window)

    def feed(self, samples: Floats) -> Iterator[AnalysisWindow]:
        """Take the next source samples, float32[n], and yield the windows that they complete; to be used up."""
        last = (self._geometry.patches - 1) * self._geometry.stride
        for start in range(0, len(samples), self._block):
            self._framer.feed(samples[start : start + self._block])
            while self._framer.has(self.next_window + last):
                yield self._next(self._patches(self.next_window))

    def finish(self) -> Iterator[AnalysisWindow]:
        """End the stream and yield the windows that are left; nothing may be fed afterwards."""
        length = self._framer.finish()
        for window in range(self.next_window, self._count(length)):
            first, *others = self._patches(window)
            heard = [patch for patch in others if length - patch * self._framer.hop >= self._tail]
            yield self._next([first, *heard])

    def _count(self, length: int) -> int:
        """Windows of a stream of `length` samples at the model's rate."""
        hop = self._framer.hop
        covered = hop * self._geometry.window_ms // self._geometry.hop_ms
        return 0 if length == 0 else 1 + max(0, (length - covered - self._tail) // hop + 1)

    def _patches(self, window: int) -> list[int]:
        return [window + second * self._geometry.stride for second in range(self._geometry.patches)]

    def _next(self, patches: list[int]) -> AnalysisWindow:
        fresh = tuple((patch, self._framer.patch(patch)) for patch in patches if patch not in self._given)
        window = AnalysisWindow(self.next_window, tuple(patches), fresh)
        self._given.update(patches)
        self._given.discard(self.next_window)
        self.next_window += 1
        self._framer.keep(self.next_window)
        return window


def score_window(engine: SoundEngine, window: AnalysisWindow) -> AnalysisWindow:
    """Return a window with scores in place of rows; windows may be scored in any order."""
    return AnalysisWindow(
        window.number, window.patches, tuple((patch, engine.scores(rows)) for patch, rows in window.fresh)
    )


class PatchAverager:
    """Scored windows in order to float32[tags] each; keeps the scores of patches that a later window has too."""

    def __init__(self) -> None:
        self._scores: dict[int, Floats] = {}

    def add(self, window: AnalysisWindow) -> Floats:
        """Return the scores of the next window."""
        self._scores.update(window.fresh)
        scores = [self._scores[patch] for patch in window.patches]
        self._scores.pop(window.number)
        return scores[0] if len(scores) == 1 else np.mean(scores, axis=0, dtype=np.float32)


class Analysis:
    """Scores the windows of one stream; the same windows bit for bit however the stream is cut or resumed.

    To resume after window w - 1, construct with `first_window` = w and `at` = the position of a source sample that is
    not after the `needed_from` of the interrupted run, then feed from there.
    """

    def __init__(
        self, engine: SoundEngine, geometry: Geometry, rate: int, *, at: int = 0, first_window: int = 0
    ) -> None:
        """Begin with source sample `at` (of `rate` Hz) and window `first_window`.

        Raises:
            EngineError: the model's patches do not fit the geometry.
            ValueError: the window needs samples before `at`.
        """
        self._engine = engine
        self._windows = WindowCutter(engine.manifest.input, geometry, rate, at=at, first_window=first_window)
        self._averager = PatchAverager()

    @property
    def next_window(self) -> int:
        """Index of the first window that was not given yet."""
        return self._windows.next_window

    @property
    def position(self) -> int:
        """Source samples so far, counted from the stream's beginning."""
        return self._windows.position

    @property
    def needed_from(self) -> int:
        """Position of the first source sample that the next window depends on."""
        return self._windows.needed_from

    def feed(self, samples: Floats) -> ScoredWindows:
        """Take the next source samples, float32[n], and return the windows that they complete."""
        return self._scored(self._windows.feed(samples))

    def finish(self) -> ScoredWindows:
        """End the stream and return the windows that are left; nothing may be fed afterwards."""
        return self._scored(self._windows.finish())

    def _scored(self, windows: Iterator[AnalysisWindow]) -> ScoredWindows:
        first = self.next_window
        ready = [self._averager.add(score_window(self._engine, window)) for window in windows]
        packed = pack(np.stack(ready), self._engine.manifest.points) if ready else b""
        return ScoredWindows(first, len(ready), packed)


def score_alone(engine: SoundEngine, geometry: Geometry, pcm: DecodedAudio) -> bytes:
    """Return the packed scores of audio that is one window by itself: its beginning counts, filled up with zeros."""
    analysis = Analysis(engine, geometry, pcm.rate)
    beginning = pcm.samples[: -(-pcm.rate * geometry.window_ms // 1000)]
    return analysis.feed(beginning).packed + analysis.finish().packed
