"""Who speaks when: segments of voice activity, embeddings of overlapping windows in them, clusters of those, turns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from streams.models.protocol import Floats
from streams.voice.activity import RATE, Hysteresis, SileroDetector, SpeechSegment, SpeechSegmenter
from streams.voice.clustering import MAX_CLUSTERS, adapted_threshold, cluster, merge_clusters, sum_by_label
from streams.voice.manifest import DiarizationSettings
from streams.voice.speaker_engine import SpeakerEngine
from topics.errors import EngineError

Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]

ACTIVITY: Final = Hysteresis(max_speech_s=60.0)
#: Windows shorter than this share of a full one say too little of a voice to make a cluster; they join one.
MIN_WINDOW_SHARE: Final = 0.6
#: A cluster with less speech than this is no speaker of its own. The longer the recording, the more windows lie across
#: a change of speaker and are alike by chance: so it is this share of all speech, between these seconds.
MIN_SPEECH_SHARE: Final = 0.02
MIN_SPEECH_S: Final = (2.0, 10.0)
#: How alike two clusters with so much speech are is known well: no caution is needed for them.
ENOUGH_SPEECH_S: Final = 15.0
#: Cosines that a change of speaker from one window to the next costs.
CHANGE_COST: Final = 0.1
#: Pauses of one speaker that do not end a turn.
MAX_BREATH_S: Final = 0.3


class SpeakerTurn(msgspec.Struct, frozen=True):
    """A speaker talks from `start_s` to `end_s`, seconds; speakers count from 0 in order of first appearance."""

    start_s: float
    end_s: float
    speaker: int


class EmbeddingWindow(msgspec.Struct, frozen=True):
    """What is embedded, and the part of it that its speaker is said to speak in: windows overlap, parts do not."""

    heard: SpeechSegment
    part: SpeechSegment


def diarize(
    blocks: Iterable[Floats],
    engine: SpeakerEngine,
    activity: SileroDetector,
    settings: DiarizationSettings | None = None,
) -> list[SpeakerTurn]:
    """Return the turns of a recording, float32[n] a block at 16 kHz, in order of time.

    The number of speakers is found. The same audio gives the same turns however it is cut into blocks. What is kept
    grows with the speech by one vector a window: some 60 MB for ten hours, 128 dimensions and a hop of 0.8 s.

    Raises:
        EngineError: a model failed, or the engine is not for 16 kHz or has no settings.
    """
    settings = settings or engine.manifest.diarization
    if settings is None:
        raise EngineError(f"{engine.manifest.model_id}: its manifest has no settings for diarization")
    return speaker_turns(*embed_windows(blocks, engine, activity, settings), settings)


def embed_windows(
    blocks: Iterable[Floats], engine: SpeakerEngine, activity: SileroDetector, settings: DiarizationSettings
) -> tuple[list[EmbeddingWindow], Floats]:
    """Return the windows of a recording in order of time, and float32[windows, dimension]; see `diarize`."""
    known = engine.manifest
    if known.input.sample_rate != RATE:
        raise EngineError(f"{known.model_id}: takes another rate than {RATE} Hz")
    found, vectors = [], []
    for segment, samples, at in speech_segments(blocks, activity):
        for window in cut_windows(segment, settings):
            found.append(window)
            vectors.append(engine.embed(_cut(samples, window.heard, at, known.input.min_samples)))
    return found, np.array(vectors, np.float32).reshape(len(found), known.dimension)


def speech_segments(blocks: Iterable[Floats], activity: SileroDetector) -> Iterator[tuple[SpeechSegment, Floats, int]]:
    """Yield each segment of speech with samples that cover it, the first of which has the number given.

    Samples are kept from the beginning of the segment that is not over, a minute at most.
    """
    stream, segmenter = activity.stream(), SpeechSegmenter(ACTIVITY)
    kept, at = np.empty(0, np.float32), 0
    for block in blocks:
        for piece in np.split(block, range(RATE, len(block), RATE)):
            kept = np.concatenate((kept, piece))
            for segment in segmenter.feed(stream.feed(piece)):
                yield segment, kept, at
            old = min(len(kept), max(0, int(segmenter.settled_s * RATE) - at))
            kept, at = kept[old:], at + old
    for segment in (*segmenter.feed(stream.finish()), *segmenter.finish(stream.samples / RATE)):
        yield segment, kept, at


def cut_windows(segment: SpeechSegment, settings: DiarizationSettings) -> list[EmbeddingWindow]:
    """Return windows that cover a segment: of `window_s`, at most `hop_s` apart, or one where it is shorter."""
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


def speaker_turns(
    found: Sequence[EmbeddingWindow], vectors: Floats, settings: DiarizationSettings
) -> list[SpeakerTurn]:
    """Return the turns that windows in order of time and their unit vectors, float32[windows, dimension], make.

    Clusters of the windows that are long enough are the speakers. Then each window goes to a speaker so that the sum of
    its cosines with the speakers' mean directions, less `CHANGE_COST` for each change of speaker, is largest.
    """
    if not found:
        return []
    lengths = np.array([window.heard.end_s - window.heard.start_s for window in found])
    telling = lengths >= min(MIN_WINDOW_SHARE * settings.window_s, float(lengths.max()))
    labels = cluster(vectors[telling], adapted_threshold(settings.threshold, vectors[telling]))
    seconds = np.array([window.part.end_s - window.part.start_s for window in found])[telling]
    sums, sizes = sum_by_label(vectors[telling].astype(np.float64), labels), sum_by_label(np.ones(len(labels)), labels)
    means = speaker_directions(sums, sizes, sum_by_label(seconds, labels), settings.threshold)
    return join_parts(found, best_path(vectors @ means.T, CHANGE_COST))


def speaker_directions(sums: Doubles, sizes: Doubles, said: Doubles, threshold: float) -> Doubles:
    """Return the mean directions, float64[speakers, dimension], of clusters that are speakers.

    Of each cluster the sum of its vectors, float64[clusters, dimension], their number and its seconds of speech are
    given. Those with much speech are merged as far as the threshold goes; those with hardly any are left out, as in
    pyannote.audio (Bredin 2023, "pyannote.audio 2.1 speaker diarization pipeline").
    """
    least = float(np.clip(MIN_SPEECH_SHARE * said.sum(), *MIN_SPEECH_S))
    kept, much = said >= min(least, float(said.max())), said >= ENOUGH_SPEECH_S
    if much.any():
        merged = merge_clusters(sums[much], sizes[much], threshold, MAX_CLUSTERS)
        sums = np.concatenate((sum_by_label(sums[much], merged), sums[kept & ~much]))
    else:
        sums = sums[kept]
    means: Doubles = sums / np.linalg.norm(sums, axis=1, keepdims=True)
    return means


def best_path(scores: Doubles, change: float) -> Ints:
    """Return the path through float64[steps, speakers] with the largest sum of scores less `change` a change.

    Viterbi's algorithm; of equal paths the one that stays.
    """
    best = np.zeros(scores.shape[1])
    came = np.empty(scores.shape, np.intp)
    stay = np.arange(scores.shape[1])
    for step, score in enumerate(scores):
        top = int(best.argmax())
        came[step] = np.where(best >= best[top] - change, stay, top)
        best = best[came[step]] - change * (came[step] != stay) + score
    path = np.empty(len(scores), np.intp)
    state = int(best.argmax())
    for step in range(len(scores) - 1, -1, -1):
        path[step] = state
        state = int(came[step, state])
    return path


def join_parts(found: Sequence[EmbeddingWindow], speakers: Ints) -> list[SpeakerTurn]:
    """Return turns: parts in a row of one speaker are one, pauses for breath included."""
    numbers: dict[int, int] = {}
    turns: list[SpeakerTurn] = []
    for window, speaker in zip(found, speakers.tolist(), strict=True):
        part, number = window.part, numbers.setdefault(speaker, len(numbers))
        if turns and turns[-1].speaker == number and part.start_s - turns[-1].end_s <= MAX_BREATH_S:
            turns[-1] = SpeakerTurn(turns[-1].start_s, part.end_s, number)
        else:
            turns.append(SpeakerTurn(part.start_s, part.end_s, number))
    return turns


def join_turns(turns: Iterable[SpeakerTurn], pause_s: float) -> list[SpeakerTurn]:
    """Return turns in order of time, those of one speaker in a row being one unless a longer pause lies between."""
    found: list[SpeakerTurn] = []
    for turn in turns:
        if found and found[-1].speaker == turn.speaker and turn.start_s - found[-1].end_s <= pause_s:
            turn = SpeakerTurn(found.pop().start_s, turn.end_s, turn.speaker)
        found.append(turn)
    return found


def _cut(samples: Floats, heard: SpeechSegment, at: int, least: int) -> Floats:
    """Return the samples of a stretch; one that is too short for the model is repeated until it is long enough."""
    first, last = round(heard.start_s * RATE) - at, round(heard.end_s * RATE) - at
    piece = samples[max(0, first) : last]
    return np.resize(piece, max(len(piece), least))
