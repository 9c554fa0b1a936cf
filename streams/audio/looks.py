"""Which frames a second model hears for each window: the grid of its looks, fixed to the stream's beginning.

A look of a stream ends where a whole number of hops ends, less what a patch lacks of its second. A window takes the
last look that ends with it or before, so none has to wait for more audio. A look of a recording is a block, and a
window takes the one that it begins in. A last block that the recording does not fill is moved back until it ends with
the recording; a recording shorter than a block is followed by zeros.
"""

from streams.models.manifest import LogMel, Manifest
from topics.geometry import PATCH_MS, Geometry


class LookGrid:
    """The looks of the windows of a stream or recording. Any thread."""

    def __init__(self, manifest: Manifest, geometry: Geometry, recording: bool) -> None:
        """Lay out the looks of a manifest that has a second model."""
        second = manifest.second
        assert second is not None
        self.front: LogMel = second.input
        self._recording = recording
        rate, look = self.front.sample_rate, second.look(recording)
        self._count = look.frames
        self._look_hop = rate * look.hop_ms // 1000
        self._hop = rate * geometry.hop_ms // 1000
        self._length = rate * geometry.window_ms // 1000
        self._margin = rate * PATCH_MS // 1000 - manifest.input.samples

    def number(self, window: int) -> int:
        """Return the number of the look that a window takes."""
        return (window * self._hop + (0 if self._recording else self._length)) // self._look_hop

    def frames(self, number: int, length: int | None = None) -> tuple[int, int]:
        """Return the first frame of a look, negative if it begins before the audio, and how many it has.

        `length` is that of a recording that has ended, in samples of the model's rate.
        """
        if not self._recording:
            return self._complete(number * self._look_hop - self._margin) - self._count, self._count
        first = number * self._look_hop // self.front.hop
        if length is not None:
            first = max(0, min(first, self._complete(length) - self._count))
        return first, self._count

    def first_needed(self, window: int) -> int:
        """Return the first frame that a window may need."""
        first, count = self.frames(self.number(window))
        return max(0, first - count if self._recording else first)

    def first_sample(self, window: int, length: int | None = None) -> int:
        """Return the first sample of the model's rate that a window's look depends on; `length` as for `frames`."""
        return max(0, self.frames(self.number(window), length)[0]) * self.front.hop

    def end(self, window: int) -> int:
        """Return how many samples of the model's rate a window's look depends on."""
        first, count = self.frames(self.number(window))
        return (first + count - 1) * self.front.hop + self.front.span

    def _complete(self, samples: int) -> int:
        return (samples - self.front.span) // self.front.hop + 1


def look_grid(manifest: Manifest, geometry: Geometry, recording: bool) -> LookGrid | None:
    """Return the grid of the looks of a model, None if it has no second model."""
    return None if manifest.second is None else LookGrid(manifest, geometry, recording)
