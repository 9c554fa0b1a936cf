"""Makes the patches that a model scores from source samples, on a grid that is fixed to the stream's beginning.

Model-rate sample n lies at source position n * rate / model rate; frame j begins at sample j * hop of the front end;
patch p begins at p window hops. None of this depends on how the stream was cut or where reading began.
"""

from typing import Protocol

import numpy as np

from streams.audio import logmel
from streams.audio.resample import Resampler
from streams.models.manifest import LogMel, Waveform
from streams.models.protocol import Floats
from topics.errors import EngineError


class Grid(Protocol):
    """The rows of patches: log-mel frames, or the samples themselves for models that take a waveform."""

    #: Samples that a row covers; samples between the beginnings of rows; rows of a patch.
    length: int
    step: int
    rows: int

    def append(self, rows: Floats, begun: Floats, samples: Floats) -> tuple[Floats, Floats]:
        """Return `rows` with those that `begun` and `samples`, float32[n], complete; and the rest of the samples.

        Rows are float32[n, bands] or float32[n]; `begun` and what remains are samples from the next row on.
        """
        ...

    def none(self) -> Floats:
        """Return no rows."""
        ...


class FrameGrid:
    """Rows are log-mel frames. Any thread."""

    def __init__(self, front: LogMel) -> None:
        self.length, self.step, self.rows = front.span, front.hop, front.frames
        self._front = front

    def append(self, rows: Floats, begun: Floats, samples: Floats) -> tuple[Floats, Floats]:
        """Return float32[frames, bands], and the samples of the next frame."""
        return logmel.append_log_mel_frames(self._front, rows, begun, samples)

    def none(self) -> Floats:
        """Return float32[0, bands]."""
        return np.empty((0, self._front.bands), np.float32)


class SampleGrid:
    """Rows are samples. Any thread."""

    def __init__(self, front: Waveform) -> None:
        self.length, self.step, self.rows = 1, 1, front.samples

    def append(self, rows: Floats, begun: Floats, samples: Floats) -> tuple[Floats, Floats]:
        """Return all the samples, float32[n]; there are no incomplete rows."""
        return np.concatenate((rows, samples)), begun

    def none(self) -> Floats:
        """Return float32[0]."""
        return np.empty(0, np.float32)


class Framer:
    """Turns one stream into patches; keeps what is needed for those that `keep` has not released.

    One thread at a time.
    """

    def __init__(self, front: LogMel | Waveform, hop_ms: int, rate: int, *, at: int = 0, first_patch: int = 0) -> None:
        """Begin with source sample `at`, ready to give patches from `first_patch` on.

        Raises:
            EngineError: patches every `hop_ms` do not lie on the model's grid of frames.
            ValueError: `first_patch` needs samples before `at`.
        """
        self._grid: Grid = FrameGrid(front) if isinstance(front, LogMel) else SampleGrid(front)
        self.hop = front.sample_rate * hop_ms // 1000
        self._span = front.samples
        if front.sample_rate * hop_ms % (1000 * self._grid.step):
            raise EngineError(f"a hop of {hop_ms} ms is not a whole number of the model's frames")
        self._resampler = Resampler(rate, front.sample_rate, at=at, first=first_patch * self.hop)
        # Samples wait here until they complete a patch or a second: small blocks cost less together.
        self._pending: list[Floats] = []
        self._max_pending = rate
        self.position = at
        #: Samples of the next row, which is not complete.
        self._begun = np.empty(0, np.float32)
        self._rows_at = first_patch * self.hop // self._grid.step
        self._rows = self._grid.none()

    def feed(self, samples: Floats) -> None:
        """Take the next source samples, float32[n]."""
        self._pending.append(samples)
        self.position += len(samples)
        if self.position - self._resampler.position > self._max_pending:
            self._advance()

    def finish(self) -> int:
        """End the stream, with zeros after it, and return its length in samples of the model's rate."""
        self._advance()
        self._extend(self._resampler.finish())
        return self._resampler.filter.output_length(self.position)

    def first_input(self, patch: int) -> int:
        """Return the position of the first source sample that a patch depends on."""
        return self._resampler.filter.first_input(patch * self.hop)

    def is_complete(self, patch: int) -> bool:
        """Return whether all source samples of a patch were fed."""
        return self._resampler.filter.inputs_for(patch * self.hop + self._span - 1) <= self.position

    def patch(self, patch: int) -> Floats:
        """Return the rows of a patch, float32[frames, bands] or float32[samples]; after a stream's end are zeros."""
        self._advance()
        first = patch * self.hop // self._grid.step - self._rows_at
        missing = first + self._grid.rows - len(self._rows)
        if missing > 0:
            samples = (missing - 1) * self._grid.step + self._grid.length
            self._extend(np.zeros(samples - len(self._begun), np.float32))
        return self._rows[first : first + self._grid.rows]

    def keep(self, patch: int) -> None:
        """Release what only patches before this one need."""
        rows = min(patch * self.hop // self._grid.step - self._rows_at, len(self._rows))
        self._rows = self._rows[rows:]
        self._rows_at += rows

    def _advance(self) -> None:
        if self._pending:
            samples = self._pending[0] if len(self._pending) == 1 else np.concatenate(self._pending)
            self._pending.clear()
            self._extend(self._resampler.feed(samples))

    def _extend(self, samples: Floats) -> None:
        self._rows, self._begun = self._grid.append(self._rows, self._begun, samples)
