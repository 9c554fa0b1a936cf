"""Turns source samples into the rows that models score, on grids fixed to the stream's beginning.

Model-rate sample n lies at source position n * rate / model rate; frame j begins at sample j * hop of the front end;
patch p begins at p window hops. None of this depends on how the stream was cut or where reading began.
"""

from functools import lru_cache

import numpy as np

from streams.audio import logmel
from streams.audio.filters import design
from streams.audio.resample import Resampler
from streams.models.manifest import LogMel, Waveform
from streams.models.protocol import Floats
from topics.errors import EngineError


class FrameGrid:
    """Rows are log-mel frames: `length` samples each, `step` apart, `rows` in a patch. Any thread."""

    def __init__(self, front: LogMel) -> None:
        self.length, self.step, self.rows = front.span, front.hop, front.frames
        self._front = front

    def append(self, rows: Floats, begun: Floats, samples: Floats) -> tuple[Floats, Floats]:
        """Return `rows` and the rows that `begun` and `samples`, float32[n], complete; and the next row's samples.

        Rows are float32[n, bands].
        """
        return logmel.append_log_mel_frames(self._front, rows, begun, samples)

    def none(self) -> Floats:
        """Return float32[0, bands]."""
        return np.empty((0, self._front.bands), np.float32)


class SampleGrid:
    """Rows are samples, with the fields of `FrameGrid`. Any thread."""

    def __init__(self, front: Waveform) -> None:
        self.length, self.step, self.rows = 1, 1, front.samples

    def append(self, rows: Floats, begun: Floats, samples: Floats) -> tuple[Floats, Floats]:
        """Append the samples, float32[n]; no row is ever incomplete."""
        return np.concatenate((rows, samples)), begun

    def none(self) -> Floats:
        """Return float32[0]."""
        return np.empty(0, np.float32)


class Rows:
    """The rows of a stream on one grid that are held at the moment. One thread at a time."""

    def __init__(self, front: LogMel | Waveform, first_sample: int) -> None:
        """Begin at a sample of the model's rate, a whole number of steps from the stream's beginning."""
        self.grid: FrameGrid | SampleGrid = FrameGrid(front) if isinstance(front, LogMel) else SampleGrid(front)
        #: Number of the first row held.
        self.first = first_sample // self.grid.step
        self._held = self.grid.none()
        #: Samples of the next, incomplete row.
        self._begun = np.empty(0, np.float32)

    def add(self, samples: Floats) -> None:
        self._held, self._begun = self.grid.append(self._held, self._begun, samples)

    def cut(self, first: int, count: int) -> Floats:
        """Return `count` rows from `first` on, float32[count, ...]; zeros before the beginning and after the end.

        Raises:
            ValueError: a row is not held.
        """
        before = max(0, -first)
        if first + before < self.first:
            raise ValueError(f"row {first} was released, or lies before the audio: the first one is {self.first}")
        missing = first + count - self.first - len(self._held)
        if missing > 0:
            samples = (missing - 1) * self.grid.step + self.grid.length
            self.add(np.zeros(samples - len(self._begun), np.float32))
        rows = self._held[first + before - self.first : first + count - self.first]
        if not before:
            return rows
        silence = np.zeros((before - 1) * self.grid.step + self.grid.length, np.float32)
        return np.concatenate((self.grid.append(self.grid.none(), self._begun[:0], silence)[0], rows))

    def drop(self, end: int) -> None:
        """Release the rows before `end`."""
        count = min(max(0, end - self.first), len(self._held))
        self._held = self._held[count:]
        self.first += count


@lru_cache(maxsize=8)
def silent_row(front: LogMel | Waveform) -> Floats:
    """Return the row that samples of zero give, float32[bands] or float32[]."""
    rows = Rows(front, 0)
    rows.add(np.zeros(rows.grid.length, np.float32))
    silence: Floats = rows.cut(0, 1)[0]
    return silence


def is_silence(front: LogMel | Waveform, rows: Floats) -> bool:
    """Return whether rows of a model are those of digital silence; what is heard mostly differs in the first number."""
    silence = silent_row(front)
    return bool(rows.flat[0] == silence.flat[0] and (rows == silence).all())


class Framer:
    """Turns one stream into the rows of one or two models and holds them until `keep` releases them.

    One thread at a time.
    """

    def __init__(
        self,
        front: LogMel | Waveform,
        hop_ms: int,
        rate: int,
        *,
        at: int = 0,
        first_patch: int = 0,
        second: LogMel | None = None,
        wanted: int = 0,
    ) -> None:
        """Begin at source sample `at` (of `rate` Hz), ready to return patches from `first_patch` on.

        `front` and `second` are the front ends of the models. `wanted` is the first sample of the model's rate that
        the second model may need, a whole number of hops.

        Raises:
            EngineError: patches every `hop_ms` do not lie on the model's grid of frames.
            ValueError: `first_patch` needs samples before `at`.
        """
        self.hop = front.sample_rate * hop_ms // 1000
        self._span = front.samples
        first = first_patch * self.hop
        if second is not None:
            # Nobody requests rows before the source's first sample: `Rows.cut` checks it.
            while wanted < first and design(rate, front.sample_rate).first_input(wanted) < at:
                wanted += self.hop
            first = min(first, wanted)
        self._patches = Rows(front, first)
        self._contexts = None if second is None else Rows(second, first)
        for rows in (self._patches, self._contexts):
            if rows is not None and front.sample_rate * hop_ms % (1000 * rows.grid.step):
                raise EngineError(f"a hop of {hop_ms} ms is not a whole number of the model's frames")
        self._resampler = Resampler(rate, front.sample_rate, at=at, first=first)
        # Samples wait here until they complete a patch or a second: joining small blocks is cheaper.
        self._pending: list[Floats] = []
        self._max_pending = rate
        self.position = at

    def feed(self, samples: Floats) -> None:
        """Take the next source samples, float32[n]."""
        self._pending.append(samples)
        self.position += len(samples)
        if self.position - self._resampler.position > self._max_pending:
            self._advance()

    def finish(self) -> int:
        """End the stream, followed by zeros, and return its length in samples of the model's rate."""
        self._advance()
        self._extend(self._resampler.finish())
        return self._resampler.filter.output_length(self.position)

    def is_complete(self, end: int) -> bool:
        """Return whether the source samples fed so far cover the first `end` samples of the model's rate."""
        return self._resampler.filter.inputs_for(end - 1) <= self.position

    def patch(self, patch: int) -> Floats:
        """Return the rows of a patch, float32[frames, bands] or float32[samples], zeros after the stream's end."""
        self._advance()
        grid = self._patches.grid
        return self._patches.cut(patch * self.hop // grid.step, grid.rows)

    def frames(self, first: int, count: int) -> Floats:
        """Return `count` frames for the second model, float32[count, bands], as `Rows.cut` does."""
        assert self._contexts is not None
        self._advance()
        return self._contexts.cut(first, count)

    def keep(self, patch: int, frame: int = 0) -> None:
        """Release all rows before `patch` and, for the second model, all frames before `frame`."""
        self._patches.drop(patch * self.hop // self._patches.grid.step)
        if self._contexts is not None:
            self._contexts.drop(frame)

    def _advance(self) -> None:
        if self._pending:
            samples = self._pending[0] if len(self._pending) == 1 else np.concatenate(self._pending)
            self._pending.clear()
            self._extend(self._resampler.feed(samples))

    def _extend(self, samples: Floats) -> None:
        self._patches.add(samples)
        if self._contexts is not None:
            self._contexts.add(samples)
