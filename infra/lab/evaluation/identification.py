"""Evaluates open-set speaker identification: naming registered speakers and rejecting unregistered ones.

Each draw registers ten readers with three samples of 2.5 s each. The query is 4 s of one of them or of one of ten other
readers. Samples and query of a reader do not overlap but come from one recording, whose channel helps recognition, so
the figures are optimistic. For the figures called `cross` the query went through another channel.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from infra.lab.evaluation import utterances
from infra.lab.evaluation.channels import heard_through, through_channel
from infra.lab.evaluation.speakers import Scores, equal_error
from infra.lab.evaluation.utterances import SAMPLE_RATE, Utterance
from infra.teaching.operating_points import Bools
from streams.models.protocol import Floats
from streams.voice.speaker_engine import SpeakerEngine
from streams.voice.speaker_manifest import REGISTERED

#: Unregistered readers in a draw.
OTHERS: Final = 10
TIMES: Final = 4
SAMPLES: Final = 3
SAMPLE_S: Final = 2.5
QUERY_S: Final = 4.0
#: Samples of an utterance for the registered samples and the query.
NEEDED: Final = round((SAMPLES * SAMPLE_S + QUERY_S) * SAMPLE_RATE)
DRAWS: Final = 2000
#: Share of unregistered speakers who get a name. A smaller share would lose many registered speakers on other
#: microphones.
ACCEPTED: Final = 0.005
SEED: Final = 2


class BestMatches(msgspec.Struct, frozen=True):
    """The best match of each query over all draws: cosines float32[n]."""

    #: Of registered readers' queries, and whether the best match is right.
    known: Scores
    right: Bools
    #: Of unregistered readers' queries.
    unknown: Scores

    def __add__(self, other: BestMatches) -> BestMatches:
        pairs = zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)
        return BestMatches(*(np.concatenate(both) for both in pairs))


def evaluate_identification(
    engine: SpeakerEngine, folder: Path, speakers: Iterable[str] | None = None
) -> tuple[BestMatches, BestMatches]:
    """Return the best matches, plain and `cross`, for all or some readers in `folder`; repeatable.

    Readers whose utterance is too short are skipped.

    Raises:
        AudioError: An utterance does not decode.
        EngineError: The model failed.
        ValueError: There are too few readers.
    """
    readers = _readers(folder, speakers, REGISTERED + OTHERS)
    rng = np.random.default_rng(SEED)
    other = heard_through(through_channel, readers, rng)
    plain: list[BestMatches] = []
    cross: list[BestMatches] = []
    # The query is first the end of each utterance, then its beginning.
    for at_end in (True, False):
        voices = _voices(engine, readers, at_end)
        for matches, side in ((plain, readers), (cross, other)):
            matches.append(draw_matches(_scores(engine, side, voices, at_end), np.random.default_rng(SEED)))
    return plain[0] + plain[1], cross[0] + cross[1]


def threshold_growth(engine: SpeakerEngine, folder: Path, speakers: Iterable[str] | None = None) -> float:
    """Return how much the threshold of `accept_point` rises when the number of registered speakers doubles.

    Each registered speaker can be confused with the query. From two to fifty speakers, every doubling raises the
    threshold by the same amount.

    Raises:
        AudioError: An utterance does not decode.
        EngineError: The model failed.
        ValueError: There are too few readers.
    """
    readers = _readers(folder, speakers, TIMES * REGISTERED + OTHERS)
    scores = [_scores(engine, readers, _voices(engine, readers, at_end), at_end) for at_end in (True, False)]
    thresholds = []
    for count in (REGISTERED, TIMES * REGISTERED):
        one, other = (draw_matches(side, np.random.default_rng(SEED), registered=count) for side in scores)
        thresholds.append(accept_point(one + other))
    return (thresholds[1] - thresholds[0]) / math.log2(TIMES)


def draw_matches(scores: Scores, rng: np.random.Generator, registered: int = REGISTERED) -> BestMatches:
    """Register some readers and query for them and for OTHERS more, DRAWS times.

    `scores` is float32[reader of the query, registered reader].
    """
    everyone = np.tile(np.arange(len(scores)), (DRAWS, 1))
    drawn = rng.permuted(everyone, axis=1)[:, : registered + OTHERS]
    cosines = scores[drawn[:, :, np.newaxis], drawn[:, np.newaxis, :registered]]
    best, own_cosines = cosines.max(axis=2), cosines[:, :registered]
    right = own_cosines.argmax(axis=2) == np.arange(registered)
    return BestMatches(best[:, :registered].ravel(), right.ravel(), best[:, registered:].ravel())


def identification_figures(plain: BestMatches, cross: BestMatches, threshold: float) -> dict[str, float]:
    """Return shares of queries, 0..1, by the names of the model card.

    `eer_open_10` is the equal error rate of missing a registered reader and of accepting another. `identified_10` is
    the share of queries of registered readers whose best match is right, `identified_10_open` those whose match also
    reaches the threshold. `refused_10` is the share of queries of others whose best match stays below it.
    """
    shares = {"eer_open_10": equal_error(plain.known, plain.unknown)[0]}
    for end, side in (("", plain), ("_cross", cross)):
        shares[f"identified_10{end}"] = float(side.right.mean())
        shares[f"identified_10_open{end}"] = float((side.right & (side.known >= threshold)).mean())
        shares[f"refused_10{end}"] = float((side.unknown < threshold).mean())
    return shares


def accept_point(matches: BestMatches) -> float:
    """Return the threshold at which a share ACCEPTED of the others is accepted."""
    return float(np.quantile(matches.unknown, 1.0 - ACCEPTED))


def cross_checked_figures(folds: Sequence[tuple[BestMatches, BestMatches]]) -> tuple[float, dict[str, float]]:
    """Return the mean threshold of two or more folds, and the mean figures of each fold at the threshold of the others.

    The threshold is that of plain matches. Through another channel fewer speakers are recognised, but none more are
    confused.
    """
    thresholds = [accept_point(plain) for plain, _ in folds]
    others = (np.mean(thresholds[:number] + thresholds[number + 1 :]) for number in range(len(folds)))
    measured = [identification_figures(*fold, float(threshold)) for fold, threshold in zip(folds, others, strict=True)]
    return float(np.mean(thresholds)), {name: float(np.mean([one[name] for one in measured])) for name in measured[0]}


def _readers(folder: Path, speakers: Iterable[str] | None, least: int) -> list[Utterance]:
    long_enough = [read for read in utterances.read(folder, speakers) if len(read.samples) >= NEEDED]
    if len(long_enough) < least:
        raise ValueError(f"{len(long_enough)} readers have {NEEDED / SAMPLE_RATE:g} s, {least} are needed")
    return long_enough


def _scores(engine: SpeakerEngine, queries: Iterable[Utterance], voices: Floats, at_end: bool) -> Scores:
    """Return the cosines of queries, cut at one end of utterances, with registered voices."""
    cosines: Scores = np.array([engine.embed(_split_utterance(read, at_end)[1]) for read in queries]) @ voices.T
    return cosines


def _voices(engine: SpeakerEngine, registered: Iterable[Utterance], query_at_end: bool) -> Floats:
    """Return the mean direction of each reader's samples, unit vectors."""
    samples = (_split_utterance(read, query_at_end)[0] for read in registered)
    means = np.array([np.mean([engine.embed(sample) for sample in some], axis=0) for some in samples])
    units: Floats = means / np.linalg.norm(means, axis=1, keepdims=True)
    return units


def _split_utterance(read: Utterance, query_at_end: bool) -> tuple[Sequence[Floats], Floats]:
    """Return the registered samples and the query, cut from opposite ends of an utterance without overlap."""
    query, registered = round(QUERY_S * SAMPLE_RATE), round(SAMPLES * SAMPLE_S * SAMPLE_RATE)
    if query_at_end:
        return np.split(read.samples[:registered], SAMPLES), read.samples[-query:]
    return np.split(read.samples[-registered:], SAMPLES), read.samples[:query]
