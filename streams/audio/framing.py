"""From source samples to the patches that a model scores, on a grid that is fixed to the stream's beginning.

Model-rate sample n belongs to the source position n * rate / model rate; frame j begins at sample j * hop of the front
end; patch p begins at p window hops. Each is a function of the stream, not of how it was cut or where reading began.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from streams.audio import logmel
from streams.audio.resample import Resampler
from streams.models.manifest import LogMel, Waveform
from streams.models.protocol import Floats
from topics.errors import EngineError


class Grid(Protocol):
    """Rows of a patch: log-mel frames, or for models that take a waveform the samples themselves."""

    #: Samples that a row covers, distance of rows in samples, rows of a patch.
    length: int
    step: int
    rows: int

    def compute(self, samples: Floats) -> Floats:
        """Return the rows that lie wholly in `samples`."""
        ...


class FrameGrid:
    """The grid of log-mel frames."""

    def __init__(self, front: LogMel) -> None:
        self.length, self.step, self.rows = front.span, front.hop, front.frames
        self._front = front

    def compute(self, samples: Floats) -> Floats:
        """Return float32[frames, bands]."""
        return logmel.log_mel_frames(self._front, samples)


class SampleGrid:
    """The grid of samples."""

    def __init__(self, front: Waveform) -> None:
        self.length, self.step, self.rows = 1, 1, front.samples

    def compute(self, samples: Floats) -> Floats:
        """Return the samples."""
        return samples


class Framer:
    """Turns one stream into patches; keeps what the patches from `keep` on need."""

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
            raise EngineError(f"a hop of {hop_ms} ms is no whole number of the model's frames")
        self._resampler = Resampler(rate, front.sample_rate, at=at, first=first_patch * self.hop)
        # Pieces wait here until they complete a patch or a second: short ones cost less together.
        self._pieces: list[Floats] = []
        self._patience = rate
        self.position = at
        self._samples = np.empty(0, np.float32)
        self._rows_at = first_patch * self.hop // self._grid.step
        self._rows = self._grid.compute(self._samples)

    def feed(self, samples: Floats) -> None:
        """Take the next source samples."""
        self._pieces.append(samples)
        self.position += len(samples)
        if self.position - self._resampler.position > self._patience:
            self._advance()

    def finish(self) -> int:
        """End the stream, zeros from here on, and return its length in samples of the model's rate."""
        self._advance()
        self._extend(self._resampler.finish())
        return self._resampler.filter.length(self.position)

    def needed(self, patch: int) -> int:
        """Return the position of the first source sample that a patch depends on."""
        return self._resampler.filter.needed(patch * self.hop)

    def has(self, patch: int) -> bool:
        """Tell whether all source samples of a patch were fed."""
        return self._resampler.filter.wanted(patch * self.hop + self._span - 1) <= self.position

    def patch(self, patch: int) -> Floats:
        """Return the rows of a patch; where a finished stream ends earlier, samples are zeros."""
        self._advance()
        first = patch * self.hop // self._grid.step - self._rows_at
        missing = first + self._grid.rows - len(self._rows)
        if missing > 0:
            samples = (missing - 1) * self._grid.step + self._grid.length
            self._extend(np.zeros(samples - len(self._samples), np.float32))
        return self._rows[first : first + self._grid.rows]

    def keep(self, patch: int) -> None:
        """Forget what only patches before this one need."""
        rows = min(patch * self.hop // self._grid.step - self._rows_at, len(self._rows))
        self._rows = self._rows[rows:]
        self._rows_at += rows

    def _advance(self) -> None:
        if self._pieces:
            pieces = self._pieces[0] if len(self._pieces) == 1 else np.concatenate(self._pieces)
            self._pieces.clear()
            self._extend(self._resampler.feed(pieces))

    def _extend(self, samples: Floats) -> None:
        self._samples = np.concatenate((self._samples, samples))
        rows = self._grid.compute(self._samples)
        self._samples = self._samples[len(rows) * self._grid.step :]
        self._rows = np.concatenate((self._rows, rows))
