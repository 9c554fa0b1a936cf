"""Cuts the windows of a stream or file and numbers them; a model scores the patches of a window.

Let N be the length of the audio in samples of the model's rate. Window i covers [i * hop, i * hop + window). Window 0
exists if there is audio; window i exists if at least 25 ms of audio follow the end of window i - 1. So windows cover
all audio, the last one padded with zeros, for streams and files alike. A window's score is the mean over its patches,
one a second; patches other than the first count only if they hold 25 ms of audio. A window with complete patches can be
returned at once: its last patch reaches 25 ms past the end of the window before, so it exists. If a second model hears
longer pieces, a recording's window also waits for its block (`contexts`).
"""

from collections.abc import Iterator, Sequence

import msgspec

from streams.audio.contexts import context_grid
from streams.audio.filters import design
from streams.audio.framing import Framer, is_silence
from streams.models.manifest import Manifest
from streams.models.protocol import Floats
from topics.errors import EngineError
from topics.geometry import PATCH_MS, SHORTEST_TAIL_MS, Geometry

#: Seconds of audio processed at a time, however much is fed at once.
BLOCK_S = 8


class AnalysisWindow(msgspec.Struct, frozen=True):
    """A window whose audio is complete."""

    number: int
    #: The numbers of its patches; the window's score is their mean.
    patches: tuple[int, ...]
    #: Patches that no earlier window has: number and rows, or number and scores after scoring.
    fresh: tuple[tuple[int, Floats], ...]
    #: Input of the second model: number of the context and its frames, float32[frames, bands].
    context: tuple[int, Floats] | None = None
    #: It lies in a gap of the recording, or is digital silence of a stream: no model hears it, and its scores are 0.
    silent: bool = False


class WindowGrid:
    """Tells which source samples the windows of a stream depend on. Any thread."""

    def __init__(self, manifest: Manifest, geometry: Geometry, rate: int, recording: bool) -> None:
        """Lay out a model's windows over a recording or a stream of `rate` Hz.

        Raises:
            EngineError: the model's patches do not fit the geometry.
        """
        front = manifest.input
        self.contexts = context_grid(manifest, geometry, recording)
        self.hop = front.sample_rate * geometry.hop_ms // 1000
        self.tail = front.sample_rate * SHORTEST_TAIL_MS // 1000
        self._filter = design(rate, front.sample_rate)
        self._last = (geometry.patches - 1) * geometry.stride
        self._span = front.samples
        if self._span < front.sample_rate * (PATCH_MS - geometry.hop_ms) // 1000 + self.tail:
            hop = f"windows every {geometry.hop_ms} ms"
            raise EngineError(f"patches of {front.samples} samples are too short for {hop}")

    def first_sample(self, window: int) -> int:
        """Return the first sample of the model's rate that a window may depend on, a whole number of hops."""
        first = window * self.hop
        if self.contexts is None:
            return first
        return min(first, self.contexts.first_needed(window) * self.contexts.front.hop // self.hop * self.hop)

    def kept_from(self, window: int) -> int:
        """Return the first source position that a window may depend on, however long the audio is."""
        return self._filter.first_input(self.first_sample(window))

    def first_input(self, window: int, length: int | None = None) -> int:
        """Return the first source position that a window depends on.

        `length` is the length of an ended recording in source samples.
        """
        first = window * self.hop
        if self.contexts is not None:
            ended = None if length is None else self._filter.output_length(length)
            first = min(first, self.contexts.first_sample(window, ended))
        return self._filter.first_input(first)

    def patches_end(self, window: int) -> int:
        """Return how many samples of the model's rate a window's patches depend on."""
        return (window + self._last) * self.hop + self._span

    def end_of(self, window: int) -> int:
        """Return the position after the last source sample that a window depends on."""
        end = self.patches_end(window)
        return self._filter.inputs_for((end if self.contexts is None else max(end, self.contexts.end(window))) - 1)

    def is_complete(self, window: int, position: int) -> bool:
        """Return whether a window depends on no sample at or after a position."""
        return self.end_of(window) <= position


class WindowCutter:
    """Cuts one stream into unscored windows and returns each patch once. One thread at a time."""

    def __init__(
        self,
        manifest: Manifest,
        geometry: Geometry,
        rate: int,
        *,
        recording: bool = False,
        at: int = 0,
        first_window: int = 0,
        hears_silence: bool = False,
    ) -> None:
        """Begin at source sample `at` (of `rate` Hz) and window `first_window`.

        Without `hears_silence`, digital silence of a stream is cut into silent windows.

        Raises:
            EngineError: the model's patches do not fit the geometry.
            ValueError: the window needs samples before `at`.
        """
        self._geometry = geometry
        grid = self._grid = WindowGrid(manifest, geometry, rate, recording)
        self._framer = Framer(
            manifest.input,
            geometry.hop_ms,
            rate,
            at=at,
            first_patch=first_window,
            second=None if grid.contexts is None else grid.contexts.front,
            wanted=grid.first_sample(first_window),
        )
        self._block = rate * BLOCK_S
        self.next_window = first_window
        #: Windows (first, end) that lie in gaps of the recording.
        self.silent: Sequence[tuple[int, int]] = ()
        #: Patches of earlier windows that later windows share; and which patches of a stream are digital silence.
        self._shared_patches: set[int] = set()
        self._silent_patches: set[int] = set()
        self._front = None if recording or hears_silence else manifest.input

    @property
    def position(self) -> int:
        """Position after the last source sample fed, counted from the stream's beginning."""
        return self._framer.position

    @property
    def needed_from(self) -> int:
        """Position of the first source sample that the next window may depend on."""
        return self._grid.kept_from(self.next_window)

    def feed(self, samples: Floats) -> Iterator[AnalysisWindow]:
        """Take the next source samples, float32[n], and yield the windows they complete.

        The iterator must be exhausted before the next call.
        """
        for start in range(0, len(samples), self._block):
            self._framer.feed(samples[start : start + self._block])
            while self._grid.is_complete(self.next_window, self.position):
                yield self._cut(self._patches(self.next_window))

    def finish(self, whole: bool = True) -> Iterator[AnalysisWindow]:
        """End the stream and yield the remaining windows; feed nothing afterwards.

        If the audio broke off (`whole` is False), yield only windows with complete patches.
        """
        length = self._framer.finish()
        count = self._count(length)
        while self.next_window < count if whole else self._framer.is_complete(self._grid.patches_end(self.next_window)):
            first, *others = self._patches(self.next_window)
            audible = [patch for patch in others if length - patch * self._grid.hop >= self._grid.tail]
            yield self._cut([first, *audible], length)

    def _count(self, length: int) -> int:
        """Return the number of windows in `length` samples of the model's rate."""
        hop = self._grid.hop
        covered = hop * self._geometry.window_ms // self._geometry.hop_ms
        return 0 if length == 0 else 1 + max(0, (length - covered - self._grid.tail) // hop + 1)

    def _patches(self, window: int) -> list[int]:
        return [window + second * self._geometry.stride for second in range(self._geometry.patches)]

    def _cut(self, patches: list[int], length: int | None = None) -> AnalysisWindow:
        silent = any(first <= self.next_window < end for first, end in self.silent)
        # Later windows may share the other patches.
        own = [patch for patch in patches if not (silent and patch == self.next_window)]
        fresh = tuple((patch, self._framer.patch(patch)) for patch in own if patch not in self._shared_patches)
        if self._front is not None:
            self._silent_patches.update(patch for patch, rows in fresh if is_silence(self._front, rows))
            if self._silent_patches.issuperset(patches):
                silent, fresh = True, tuple(one for one in fresh if one[0] != self.next_window)
            self._silent_patches.discard(self.next_window)
        context, frame = None, 0
        if (contexts := self._grid.contexts) is not None:
            number = contexts.number(self.next_window)
            context = None if silent else (number, self._framer.frames(*contexts.frames(number, length)))
            frame = contexts.first_needed(self.next_window + 1)
        window = AnalysisWindow(self.next_window, tuple(patches), fresh, context, silent)
        self._shared_patches.update(patches)
        self._shared_patches.discard(self.next_window)
        self.next_window += 1
        self._framer.keep(self.next_window, frame)
        return window
