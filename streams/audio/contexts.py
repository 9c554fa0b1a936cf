"""The frames that a second model hears for each window: a grid of contexts, fixed to the stream's beginning.

In a stream, a context ends at a whole number of hops, minus what a patch lacks of its second. A window takes the last
context that ends no later than it does, so no window waits for more audio. In a recording, a context is a block, and a
window takes the block in which it begins. A last, partial block moves back until it ends with the recording; zeros pad
a recording shorter than a block.
"""

from streams.models.manifest import LogMel, Manifest
from topics.geometry import PATCH_MS, Geometry


class ContextGrid:
    """The contexts of the windows of a stream or recording. Any thread."""

    def __init__(self, manifest: Manifest, geometry: Geometry, recording: bool) -> None:
        """Lay out the contexts; the manifest must have a second model."""
        second = manifest.second
        assert second is not None
        self.front: LogMel = second.input
        self._recording = recording
        rate, context = self.front.sample_rate, second.context(recording)
        self._count = context.frames
        self._context_hop = rate * context.hop_ms // 1000
        self._hop = rate * geometry.hop_ms // 1000
        self._length = rate * geometry.window_ms // 1000
        self._margin = rate * PATCH_MS // 1000 - manifest.input.samples

    def number(self, window: int) -> int:
        """Return the number of the context that a window takes."""
        return (window * self._hop + (0 if self._recording else self._length)) // self._context_hop

    def frames(self, number: int, length: int | None = None) -> tuple[int, int]:
        """Return the first frame of a context, negative if it begins before the audio, and its number of frames.

        `length` is the length of an ended recording in samples of the model's rate.
        """
        if not self._recording:
            return self._complete(number * self._context_hop - self._margin) - self._count, self._count
        first = number * self._context_hop // self.front.hop
        if length is not None:
            first = max(0, min(first, self._complete(length) - self._count))
        return first, self._count

    def first_needed(self, window: int) -> int:
        """Return the first frame that a window may need."""
        first, count = self.frames(self.number(window))
        return max(0, first - count if self._recording else first)

    def first_sample(self, window: int, length: int | None = None) -> int:
        """Return the first sample of the model's rate that a window's context depends on; `length` as for `frames`."""
        return max(0, self.frames(self.number(window), length)[0]) * self.front.hop

    def end(self, window: int) -> int:
        """Return how many samples of the model's rate a window's context depends on."""
        first, count = self.frames(self.number(window))
        return (first + count - 1) * self.front.hop + self.front.span

    def _complete(self, samples: int) -> int:
        return (samples - self.front.span) // self.front.hop + 1


def context_grid(manifest: Manifest, geometry: Geometry, recording: bool) -> ContextGrid | None:
    """Return the grid of a model's contexts; None without a second model."""
    return None if manifest.second is None else ContextGrid(manifest, geometry, recording)
