"""Analyses one stream or file: samples in, scored windows out."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final

import msgspec
import numpy as np

from streams.audio.decode import DecodedAudio
from streams.audio.windows import AnalysisWindow, WindowCutter
from streams.models.own_sounds import own_columns, packed_columns, points
from streams.models.protocol import Floats, SoundEngine
from topics.geometry import Geometry
from topics.hearing import Hearing

#: Windows cut before they are scored together; each holds the rows of its patches.
TOGETHER: Final = 16
NOTHING: Final = Hearing()


def score_windows(engine: SoundEngine, windows: Sequence[AnalysisWindow]) -> list[AnalysisWindow]:
    """Replace the rows of fresh patches with their scores; the windows may come from several streams.

    Raises:
        EngineError: the model failed.
    """
    scores = iter(engine.scores_of([rows for window in windows for _, rows in window.fresh]))
    return [
        msgspec.structs.replace(window, fresh=tuple((patch, next(scores)) for patch, _ in window.fresh))
        for window in windows
    ]


class WindowScorer:
    """Computes window scores from patch scores and, if there is a second model, from its contexts.

    Keeps what later windows need. One thread at a time.
    """

    def __init__(self, engine: SoundEngine, recording: bool, hearing: Hearing = NOTHING) -> None:
        """Score windows of a recording or of a stream, with the columns that `hearing` adds to the model's tags."""
        self._second = engine.second
        self._recording = recording
        self._scores: dict[int, Floats] = {}
        self._own = own_columns(engine.manifest, hearing, recording)
        own = np.empty(0, np.float32) if self._own is None else self._own.of(None)
        self._nothing = np.concatenate((np.zeros(len(engine.manifest.tags), np.float32), own))
        #: The last context's number, logits and embedding.
        self._context: tuple[int, Floats, Floats] | None = None
        #: The embedding of the current window's context; None if the second model did not run.
        self._heard: Floats | None = None

    def scores(self, window: AnalysisWindow) -> Floats:
        """Return the scores of the next window, float32[tags], followed by the project's own columns.

        Pass windows in order, each once.

        Raises:
            EngineError: the second model failed.
        """
        self._scores.update(window.fresh)
        if window.silent:
            self._scores.pop(window.number, None)
            return self._nothing
        patches = [self._scores[patch] for patch in window.patches]
        self._scores.pop(window.number)
        scores: Floats = patches[0] if len(patches) == 1 else np.mean(patches, axis=0, dtype=np.float32)
        if self._second is None or window.context is None:
            return scores
        self._heard = None
        combined = self._second.combine(scores, partial(self._hear, *window.context))
        return combined if self._own is None else np.concatenate((combined, self._own.of(self._heard)))

    def _hear(self, number: int, frames: Floats) -> Floats:
        """Return the logits of a context, float32[tags]."""
        assert self._second is not None
        if self._context is None or self._context[0] != number:
            self._context = number, *self._second.hear(frames, self._recording)
        self._heard = self._context[2]
        return self._context[1]


class WindowJoiner:
    """Joins windows of one second every half second (`topics.geometry.SESSIONS`) into windows of two seconds (`SENSE`).

    One thread at a time. A tag scores the maximum of the two windows that begin in the first second; the last window
    takes the maximum of all that remain. So a job reports what a session reports, each event once.
    """

    def __init__(self, kept: int = 0) -> None:
        """Treat the last `kept` columns as an embedding: a long window gets the first that is not all zeros."""
        self._kept = kept
        #: Short windows not joined yet.
        self._pending: list[Floats] = []
        #: Index of the first long window not returned yet.
        self.next_window = 0

    def feed(self, scores: Iterable[Floats]) -> list[Floats]:
        """Take the scores of the next short windows, float32[tags] each; return those of completed long windows."""
        self._pending.extend(scores)
        return self._join(2, len(self._pending) // 2 - 1)

    def finish(self, whole: bool) -> list[Floats]:
        """Return the remaining long windows; only complete ones if the audio broke off (`whole` is False)."""
        if whole:
            return self._join(len(self._pending), min(len(self._pending), 1))
        return self._join(2, len(self._pending) // 3)

    def _join(self, size: int, count: int) -> list[Floats]:
        joined = [self._joined(self._pending[size * number : size * (number + 1)]) for number in range(count)]
        del self._pending[: size * len(joined)]
        self.next_window += len(joined)
        return joined

    def _joined(self, windows: Sequence[Floats]) -> Floats:
        highest: Floats = np.maximum.reduce(windows)
        if self._kept:
            embeddings = [window[-self._kept :] for window in windows]
            highest[-self._kept :] = next(filter(np.any, embeddings), embeddings[0])
        return highest


class Analysis:
    """Scores the windows of one stream; the result is the same bit for bit however the stream is cut or resumed.

    Scores are packed (`topics.scores`), one byte a tag, window by window. If the hearing asks for embeddings, each
    window's scores are followed by its embedding, one byte a number.

    One thread at a time. To resume after window w - 1, pass `first_window` = w and an `at` no later than the
    interrupted run's `needed_from`, then feed from there.
    """

    def __init__(
        self,
        engine: SoundEngine,
        geometry: Geometry,
        rate: int,
        *,
        recording: bool = False,
        at: int = 0,
        first_window: int = 0,
        hearing: Hearing = NOTHING,
        hears_silence: bool = False,
    ) -> None:
        """Begin a stream or `recording` at source sample `at` (of `rate` Hz) and window `first_window`.

        With `hears_silence`, the models score digital silence of a stream too; otherwise it has the lowest scores.

        Raises:
            EngineError: the model's patches do not fit the geometry.
            ValueError: the window needs samples before `at`.
        """
        self._engine = engine
        self._points = points(engine.manifest, hearing, recording)
        self._cutter = WindowCutter(
            engine.manifest,
            geometry,
            rate,
            recording=recording,
            at=at,
            first_window=first_window,
            hears_silence=hears_silence,
        )
        self._scorer = WindowScorer(engine, recording, hearing)

    def skip(self, silent: Sequence[tuple[int, int]]) -> None:
        """Have no model hear windows (first, end) that lie in gaps of the recording."""
        self._cutter.silent = silent

    @property
    def next_window(self) -> int:
        """Index of the first window not returned yet."""
        return self._cutter.next_window

    @property
    def position(self) -> int:
        """Position after the last source sample fed, counted from the stream's beginning."""
        return self._cutter.position

    @property
    def needed_from(self) -> int:
        """Position of the first source sample that the next window depends on."""
        return self._cutter.needed_from

    def feed(self, samples: Floats) -> bytes:
        """Take the next source samples, float32[n], and return the scores of the windows they complete.

        Raises:
            EngineError: the model failed.
        """
        return self._score(self._cutter.feed(samples))

    def cut(self, samples: Floats) -> list[AnalysisWindow]:
        """Take the next source samples, float32[n], and return the windows they complete, for scoring and `take`."""
        return list(self._cutter.feed(samples))

    def take(self, windows: Sequence[AnalysisWindow]) -> bytes:
        """Pack windows that `cut` returned and `score_windows` scored.

        Raises:
            EngineError: the second model failed, or a score is not a number.
        """
        return self._packed([self._scorer.scores(window) for window in windows])

    def finish(self, whole: bool = True) -> bytes:
        """End the stream and return the scores of the remaining windows, as `WindowCutter.finish` does.

        Raises:
            EngineError: the model failed.
        """
        return self._score(self._cutter.finish(whole))

    def _score(self, windows: Iterator[AnalysisWindow]) -> bytes:
        scores: list[Floats] = []
        while batch := list(islice(windows, TOGETHER)):
            scores += [self._scorer.scores(window) for window in score_windows(self._engine, batch)]
        return self._packed(scores)

    def _packed(self, scores: list[Floats]) -> bytes:
        return packed_rows(np.stack(scores), self._points) if scores else b""


def packed_rows(rows: Floats, points: Sequence[float]) -> bytes:
    """Pack window scores, float32[windows, columns], as `Analysis` does.

    Raises:
        EngineError: a score is not a number.
    """
    packed, embeddings = packed_columns(rows, points)
    if not embeddings:
        return packed
    parts = [np.frombuffer(part, np.uint8).reshape(len(rows), -1) for part in (packed, embeddings)]
    return np.concatenate(parts, axis=1).tobytes()


def score_alone(engine: SoundEngine, geometry: Geometry, audio: DecodedAudio, hearing: Hearing = NOTHING) -> bytes:
    """Return the packed scores of the audio's first window, padded with zeros if it is shorter.

    Raises:
        EngineError: the model failed, or its patches do not fit the geometry.
    """
    analysis = Analysis(engine, geometry, audio.rate, recording=True, hearing=hearing)
    beginning = audio.samples[: window_samples(geometry, audio.rate)]
    return analysis.feed(beginning) + analysis.finish()


def window_samples(geometry: Geometry, rate: int) -> int:
    """Return how many samples of `rate` Hz one window covers."""
    return -(-rate * geometry.window_ms // 1000)
