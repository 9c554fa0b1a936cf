"""Diarization: finds speech segments, embeds overlapping windows in them, clusters these and returns turns."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from streams.models.protocol import Floats
from streams.voice.activity import VoiceActivityDetector
from streams.voice.clustering import MAX_CLUSTERS, adapted_threshold, cluster, merge_clusters, sum_by_label
from streams.voice.speaker_engine import SpeakerEngine
from streams.voice.speaker_manifest import DiarizationSettings
from streams.voice.speech_segments import RATE, Hysteresis, SpeechSegment, SpeechSegmenter
from topics.errors import EngineError

Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]

ACTIVITY: Final = Hysteresis(max_speech_s=60.0)
#: Windows shorter than this share of a full one carry too little of a voice to form clusters; they join one later.
MIN_WINDOW_SHARE: Final = 0.6
#: A cluster with less speech than this share of all speech is no speaker, with the limit kept between these seconds.
#: It is a share because longer recordings have more windows with a change of speaker, some of them alike by chance.
MIN_SPEECH_SHARE: Final = 0.02
MIN_SPEECH_S: Final = (2.0, 10.0)
#: Seconds of speech that make the similarity of two clusters reliable: they are merged by the model's threshold.
ENOUGH_SPEECH_S: Final = 15.0
#: The cost of a change of speaker between two windows, in units of cosine.
CHANGE_COST: Final = 0.1
#: A longer pause of a speaker ends the turn.
MAX_BREATH_S: Final = 0.3
#: Maximum seconds by which voice activity begins late and ends early.
GROWTH_S: Final = 0.3
#: To find more speakers than the threshold yields, lower it by this factor, at most this many times.
STEP: Final = 0.8
STEPS: Final = 10


class DiarizationTurn(msgspec.Struct, frozen=True):
    """A speaker's turn from `start_s` to `end_s`, in seconds; speakers count from 0 in order of first appearance."""

    start_s: float
    end_s: float
    speaker: int


class SpeakerCount(msgspec.Struct, frozen=True):
    """Bounds on the number of speakers, if known in advance."""

    least: int = 1
    most: int = MAX_CLUSTERS


ANY_COUNT: Final = SpeakerCount()


class EmbeddingWindow(msgspec.Struct, frozen=True):
    """A window to embed."""

    #: The stretch to embed. Windows overlap.
    span: SpeechSegment
    #: The part of the speech attributed to the window's speaker. Parts do not overlap.
    part: SpeechSegment


def diarize(
    blocks: Iterable[Floats],
    engine: SpeakerEngine,
    detector: VoiceActivityDetector,
    count: SpeakerCount = ANY_COUNT,
) -> list[DiarizationTurn]:
    """Return the turns of a recording, in blocks of float32[n] at 16 kHz, in order of time.

    Finds the number of speakers too, within `count`; it may be lower if too little is said. The same audio gives the
    same turns however it is cut. Keeps one vector per window of speech: some 70 MB for ten hours, 384 dimensions and
    a hop of 0.8 s.

    Raises:
        EngineError: a model failed, or the engine does not take 16 kHz or has no settings.
    """
    settings = engine.manifest.diarization
    if settings is None:
        raise EngineError(f"{engine.manifest.model_id}: its manifest has no settings for diarization")
    return diarization_turns(*embed_windows(blocks, engine, detector, settings), settings, count)


def embed_windows(
    blocks: Iterable[Floats], engine: SpeakerEngine, detector: VoiceActivityDetector, settings: DiarizationSettings
) -> tuple[list[EmbeddingWindow], Floats]:
    """Return the windows of a recording, in blocks of float32[n] at 16 kHz, in order of time, and their unit vectors.

    Returns:
        The windows, and float32[windows, dimension].

    Raises:
        EngineError: a model failed, or the engine does not take 16 kHz.
    """
    manifest = engine.manifest
    if manifest.input.sample_rate != RATE:
        raise EngineError(f"{manifest.model_id}: takes another rate than {RATE} Hz")
    windows, vectors = [], []
    for segment, samples, at in speech_segments(blocks, detector):
        for window in cut_windows(segment, settings):
            windows.append(window)
            vectors.append(engine.embed(_cut(samples, window.span, at, manifest.input.min_samples)))
    return windows, np.array(vectors, np.float32).reshape(len(windows), manifest.dimension)


def speech_segments(
    blocks: Iterable[Floats], detector: VoiceActivityDetector
) -> Iterator[tuple[SpeechSegment, Floats, int]]:
    """Yield each segment of speech, samples that cover it, and the number of the first of these samples.

    Keeps samples from the beginning of the current segment, at most a minute.
    """
    stream, segmenter = detector.stream(), SpeechSegmenter(ACTIVITY)
    buffer, at = np.empty(0, np.float32), 0
    for block in blocks:
        for second in np.split(block, range(RATE, len(block), RATE)):
            buffer = np.concatenate((buffer, second))
            for segment in segmenter.feed(stream.feed(second)):
                yield segment, buffer, at
            old = min(len(buffer), max(0, int(segmenter.settled_s * RATE) - at))
            buffer, at = buffer[old:], at + old
    for segment in (*segmenter.feed(stream.finish()), *segmenter.finish(stream.samples / RATE)):
        yield segment, buffer, at


def cut_windows(segment: SpeechSegment, settings: DiarizationSettings) -> list[EmbeddingWindow]:
    """Return windows of `window_s` that cover a segment, at most `hop_s` apart; one window for a shorter segment."""
    spare = segment.end_s - segment.start_s - settings.window_s
    if spare <= 0:
        return [EmbeddingWindow(segment, segment)]
    starts = np.linspace(segment.start_s, segment.start_s + spare, 1 + int(np.ceil(spare / settings.hop_s - 1e-9)))
    centres = starts + settings.window_s / 2
    bounds = [segment.start_s, *((centres[1:] + centres[:-1]) / 2).tolist(), segment.end_s]
    return [
        EmbeddingWindow(SpeechSegment(start, start + settings.window_s), SpeechSegment(begin, end))
        for start, begin, end in zip(starts.tolist(), bounds[:-1], bounds[1:], strict=True)
    ]


def diarization_turns(
    windows: Sequence[EmbeddingWindow], vectors: Floats, settings: DiarizationSettings, count: SpeakerCount = ANY_COUNT
) -> list[DiarizationTurn]:
    """Return turns from windows in order of time and their unit vectors, float32[windows, dimension].

    Clusters of the long enough windows are the speakers. Then assign each window to a speaker to maximize the sum of
    cosines with the speakers' mean directions, minus `CHANGE_COST` per change of speaker.
    """
    if not windows:
        return []
    lengths = np.array([window.span.end_s - window.span.start_s for window in windows])
    long_enough = lengths >= min(MIN_WINDOW_SHARE * settings.window_s, float(lengths.max()))
    long_vectors = vectors[long_enough]
    seconds = np.array([window.part.end_s - window.part.start_s for window in windows])[long_enough]
    for step in range(1 + STEPS):
        threshold = settings.threshold * STEP**step
        # A lower threshold may find more than are missing.
        bounds = SpeakerCount(count.least, count.least) if step else count
        labels = cluster(long_vectors, adapted_threshold(threshold, long_vectors))
        sums, sizes = sum_by_label(long_vectors.astype(np.float64), labels), sum_by_label(np.ones(len(labels)), labels)
        directions = speaker_directions(sums, sizes, sum_by_label(seconds, labels), threshold, bounds)
        if len(directions) >= min(count.least, len(long_vectors)):
            break
    return join_parts(windows, best_path(vectors @ directions.T, CHANGE_COST))


def speaker_directions(
    sums: Doubles, sizes: Doubles, seconds: Doubles, threshold: float, count: SpeakerCount = ANY_COUNT
) -> Doubles:
    """Return the mean directions, float64[speakers, dimension], of the clusters that are speakers.

    Clusters are given by the sums of their vectors, float64[clusters, dimension], their sizes and their seconds of
    speech, float64[clusters] each. Clusters with much speech are merged up to the threshold. Clusters with hardly any
    are dropped, as in pyannote.audio (Bredin 2023, "pyannote.audio 2.1 speaker diarization pipeline"), unless needed
    for the least `count`. Beyond the most `count`, the nearest are merged.
    """
    least = float(np.clip(MIN_SPEECH_SHARE * seconds.sum(), *MIN_SPEECH_S))
    known = float(np.sort(seconds)[-min(count.least, len(seconds))])
    speakers, large = seconds >= min(least, known), seconds >= ENOUGH_SPEECH_S
    if large.any():
        merged_labels = merge_clusters(sums[large], sizes[large], threshold, MAX_CLUSTERS)
        sums = np.concatenate((sum_by_label(sums[large], merged_labels), sums[speakers & ~large]))
        sizes = np.concatenate((sum_by_label(sizes[large], merged_labels), sizes[speakers & ~large]))
    else:
        sums, sizes = sums[speakers], sizes[speakers]
    sums = sum_by_label(sums, merge_clusters(sums, sizes, -1.0, count.most))
    means: Doubles = sums / np.linalg.norm(sums, axis=1, keepdims=True)
    return means


def best_path(scores: Doubles, change_cost: float) -> Ints:
    """Return the path through float64[steps, speakers] that maximizes its scores minus the cost of its changes.

    By Viterbi's algorithm, intp[steps]; of equal paths, the one that stays.
    """
    best = np.zeros(scores.shape[1])
    previous = np.empty(scores.shape, np.intp)
    stay = np.arange(scores.shape[1])
    for step, score in enumerate(scores):
        top = int(best.argmax())
        previous[step] = np.where(best >= best[top] - change_cost, stay, top)
        best = best[previous[step]] - change_cost * (previous[step] != stay) + score
    path = np.empty(len(scores), np.intp)
    state = int(best.argmax())
    for step in range(len(scores) - 1, -1, -1):
        path[step] = state
        state = int(previous[step, state])
    return path


def join_parts(windows: Sequence[EmbeddingWindow], speakers: Ints) -> list[DiarizationTurn]:
    """Join windows into turns by their speakers, intp[windows]: a longer pause or another speaker begins a new turn."""
    numbers: dict[int, int] = {}
    parts = []
    for window, speaker in zip(windows, speakers.tolist(), strict=True):
        number = numbers.setdefault(speaker, len(numbers))
        parts.append(DiarizationTurn(window.part.start_s, window.part.end_s, number))
    return join_turns(parts, MAX_BREATH_S)


def join_turns(turns: Iterable[DiarizationTurn], pause_s: float) -> list[DiarizationTurn]:
    """Return turns in order of time, joining consecutive ones of one speaker over pauses of at most `pause_s`."""
    result: list[DiarizationTurn] = []
    for turn in turns:
        if result and result[-1].speaker == turn.speaker and turn.start_s - result[-1].end_s <= pause_s:
            turn = DiarizationTurn(result.pop().start_s, turn.end_s, turn.speaker)
        result.append(turn)
    return result


def lengthen_turns(turns: Sequence[DiarizationTurn], length_s: float, pause_s: float) -> list[DiarizationTurn]:
    """Return turns as a listener would mark them; voice activity misses soft beginnings and ends, and breaths.

    Each turn grows by `GROWTH_S` on both sides, at most to the middle of the gap to its neighbour; then a speaker's
    turns are joined over remaining pauses of at most `pause_s`. The recording is `length_s` long.
    """
    if not turns:
        return []
    ends = [(before.end_s + after.start_s) / 2 for before, after in pairwise(turns)]
    longer = (
        DiarizationTurn(
            min(turn.start_s, max(low, turn.start_s - GROWTH_S)),
            min(length_s, max(turn.end_s, min(high, turn.end_s + GROWTH_S))),
            turn.speaker,
        )
        for low, turn, high in zip([0.0, *ends], turns, [*ends, length_s], strict=True)
    )
    return join_turns(longer, pause_s)


def _cut(samples: Floats, span: SpeechSegment, at: int, least: int) -> Floats:
    """Return the samples of a span, repeated to at least `least`; `at` is the number of the first of `samples`."""
    first, last = round(span.start_s * RATE) - at, round(span.end_s * RATE) - at
    piece = samples[max(0, first) : last]
    return np.resize(piece, max(len(piece), least))
