"""How well a speaker-embedding model names registered speakers, and refuses people who are not registered.

Of ten readers three pieces of 2.5 s are registered, and one of 4 s is asked for; so it is of ten more who are not
registered. Pieces of one reader do not overlap but are of one recording, whose channel is also recognised, so the
figures are those of good days: with `cross` what is asked for went through another channel.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from infra.lab.evaluation import utterances
from infra.lab.evaluation.channels import through_channel
from infra.lab.evaluation.speakers import Scores, equal_error
from infra.lab.evaluation.utterances import SAMPLE_RATE, Utterance
from streams.models.protocol import Floats
from streams.voice.manifest import REGISTERED
from streams.voice.speaker_engine import SpeakerEngine

#: Readers who are not registered in a draw. How the threshold grows is measured where so many times ten are.
OTHERS: Final = 10
TIMES: Final = 4
SAMPLES: Final = 3
SAMPLE_S: Final = 2.5
ASKED_S: Final = 4.0
DRAWS: Final = 2000
SEED: Final = 2

Bools = npt.NDArray[np.bool_]


class Matches(msgspec.Struct, frozen=True):
    """The best matches of what was asked for, over all draws: cosines float32[n]."""

    #: Of readers who are registered, and whether the match is them.
    known: Scores
    right: Bools
    #: Of readers who are not.
    unknown: Scores

    def __add__(self, other: Matches) -> Matches:
        pairs = zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)
        return Matches(*(np.concatenate(both) for both in pairs))


def evaluate_identification(
    engine: SpeakerEngine, folder: Path, speakers: Iterable[str] | None = None
) -> tuple[Matches, Matches]:
    """Ask a model for the readers in `folder`, or some of them; return plain and `cross`, the same for the same call.

    Readers whose utterance is too short for all pieces are left out.

    Raises:
        AudioError: an utterance does not decode.
        EngineError: the model failed.
        ValueError: there are too few readers.
    """
    readers = _readers(folder, speakers, REGISTERED + OTHERS)
    rng = np.random.default_rng(SEED)
    other = [msgspec.structs.replace(u, samples=through_channel(u.samples, SAMPLE_RATE, rng)) for u in readers]
    plain: list[Matches] = []
    cross: list[Matches] = []
    # What is asked for is the end of each utterance, and then the beginning.
    for at_end in (True, False):
        for matches, side in ((plain, readers), (cross, other)):
            matches.append(draw(_scores(engine, side, readers, at_end), np.random.default_rng(SEED)))
    return plain[0] + plain[1], cross[0] + cross[1]


def growth(engine: SpeakerEngine, folder: Path, speakers: Iterable[str] | None = None) -> float:
    """Return how much the threshold of `open_set` rises where twice as many are registered; errors likewise.

    Each who is registered is one more to be taken for. Measured from two to fifty, the rise is the same each time that
    their number doubles.
    """
    readers = _readers(folder, speakers, TIMES * REGISTERED + OTHERS)
    scores = [_scores(engine, readers, readers, at_end) for at_end in (True, False)]
    thresholds = []
    for count in (REGISTERED, TIMES * REGISTERED):
        one, other = (draw(side, np.random.default_rng(SEED), registered=count) for side in scores)
        thresholds.append(open_set(one + other)[1])
    return (thresholds[1] - thresholds[0]) / math.log2(TIMES)


def draw(scores: Scores, rng: np.random.Generator, count: int = DRAWS, registered: int = REGISTERED) -> Matches:
    """Register some of the readers and ask for them and ten more, `count` times.

    `scores` is float32[reader asked, reader].
    """
    everyone = np.tile(np.arange(len(scores)), (count, 1))
    drawn = rng.permuted(everyone, axis=1)[:, : registered + OTHERS]
    cosines = scores[drawn[:, :, np.newaxis], drawn[:, np.newaxis, :registered]]
    best, own_cosines = cosines.max(axis=2), cosines[:, :registered]
    right = own_cosines.argmax(axis=2) == np.arange(registered)
    return Matches(best[:, :registered].ravel(), right.ravel(), best[:, registered:].ravel())


def figures(plain: Matches, cross: Matches, threshold: float) -> dict[str, float]:
    """Return shares, 0..1, of what was asked for, by the names of the model card.

    `eer_open_10` is the error rate where as many registered readers are missed as others are taken for one of them,
    `identified_10` the share of registered readers whose best match is them, `identified_10_open` of those whose match
    also reaches the threshold, and `refused_10` the share of the others whose best match does not.
    """
    shares = {"eer_open_10": open_set(plain)[0]}
    for end, side in (("", plain), ("_cross", cross)):
        shares[f"identified_10{end}"] = float(side.right.mean())
        shares[f"identified_10_open{end}"] = float((side.right & (side.known >= threshold)).mean())
        shares[f"refused_10{end}"] = float((side.unknown < threshold).mean())
    return shares


def open_set(matches: Matches) -> tuple[float, float]:
    """Return (rate, threshold) where as many registered readers are missed as others are taken for one of them."""
    return equal_error(matches.known, matches.unknown)


def cross_checked(folds: Sequence[tuple[Matches, Matches]]) -> tuple[float, dict[str, float]]:
    """Return the mean threshold of two folds or more, and the mean figures of each at that of the others.

    It is that of plain matches: through another channel fewer are recognised, but nobody is taken for another person.
    """
    thresholds = [open_set(plain)[1] for plain, _ in folds]
    others = (np.mean(thresholds[:number] + thresholds[number + 1 :]) for number in range(len(folds)))
    measured = [figures(*fold, float(threshold)) for fold, threshold in zip(folds, others, strict=True)]
    return float(np.mean(thresholds)), {name: float(np.mean([one[name] for one in measured])) for name in measured[0]}


def _readers(folder: Path, speakers: Iterable[str] | None, least: int) -> list[Utterance]:
    long_enough = [read for read in utterances.read(folder, speakers) if len(read.samples) >= _length()]
    if len(long_enough) < least:
        raise ValueError(f"{len(long_enough)} readers have {_length() / SAMPLE_RATE:g} s, {least} are needed")
    return long_enough


def _scores(
    engine: SpeakerEngine, queries: Iterable[Utterance], registered: Iterable[Utterance], at_end: bool
) -> Scores:
    """Return the cosines of what is asked for, at one end of utterances, with what is registered of others."""
    voices = np.array([_voice(engine, read, at_end) for read in registered])
    cosines: Scores = np.array([engine.embed(_cut(read, at_end)[1]) for read in queries]) @ voices.T
    return cosines


def _voice(engine: SpeakerEngine, read: Utterance, asked_at_end: bool) -> Floats:
    """Return the mean direction of a reader's samples, as it is matched."""
    mean = np.mean([engine.embed(sample) for sample in _cut(read, asked_at_end)[0]], axis=0)
    unit: Floats = mean / np.linalg.norm(mean)
    return unit


def _cut(read: Utterance, asked_at_end: bool) -> tuple[Sequence[Floats], Floats]:
    """Return what is registered of an utterance, and what is asked for: both ends of it, which do not overlap."""
    query, registered = round(ASKED_S * SAMPLE_RATE), round(SAMPLES * SAMPLE_S * SAMPLE_RATE)
    if asked_at_end:
        return np.split(read.samples[:registered], SAMPLES), read.samples[-query:]
    return np.split(read.samples[-registered:], SAMPLES), read.samples[:query]


def _length() -> int:
    return round((SAMPLES * SAMPLE_S + ASKED_S) * SAMPLE_RATE)
