"""Evaluates speaker verification: equal error rates of a speaker-embedding model, also across channels."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from infra.lab.evaluation import utterances
from infra.lab.evaluation.channels import heard_through, through_channel
from infra.lab.evaluation.lines import CHANNELS
from infra.lab.evaluation.utterances import SAMPLE_RATE, Utterance
from streams.models.protocol import Floats
from streams.voice.speaker_engine import SpeakerEngine

SEGMENT_S: Final = 4.0
SEED: Final = 1

Scores = npt.NDArray[np.float32]


def evaluate_speakers(
    engine: SpeakerEngine, folder: Path, speakers: Iterable[str] | None = None
) -> tuple[dict[str, float], float]:
    """Evaluate a model on the utterances of all or some readers in `folder`; repeatable.

    Return equal error rates, 0..1, over all pairs of pieces; in `cross` the second piece went through another channel.
    `4s`: non-overlapping pieces of 4 s. `whole`: whole utterances; a reader with only one contributes its two halves if
    each has at least 4 s. Also return the cosine at the equal error rate of 4 s pieces, within and across channels.

    Raises:
        AudioError: An utterance does not decode.
        EngineError: The model failed.
        ValueError: There are no pairs of one reader, or of two.
    """
    read = utterances.read(folder, speakers)
    short = engine.manifest.input.min_samples
    rng = np.random.default_rng(SEED)
    other = heard_through(through_channel, read, rng)
    counts = Counter(utterance.speaker for utterance in read)
    results: list[tuple[Scores, Scores]] = []
    for cut in (cut_segments, lambda u: _whole(u, alone=counts[u.speaker] == 1)):
        names = np.array([u.speaker for u in read for piece in cut(u) if len(piece) >= short])
        plain, distorted = (
            np.array([engine.embed(piece) for u in side for piece in cut(u) if len(piece) >= short])
            for side in (read, other)
        )
        results += [_plain_pairs(plain, names), _cross_pairs(plain, distorted, names)]
    names_of_rates = ("eer_4s", "eer_4s_cross", "eer_whole", "eer_whole_cross")
    rates = {name: equal_error(*pairs)[0] for name, pairs in zip(names_of_rates, results, strict=True)}
    both = (np.concatenate(scores) for scores in zip(*results[:2], strict=True))
    return rates, equal_error(*both)[1]


def channel_errors(engine: SpeakerEngine, folder: Path, speakers: Iterable[str] | None = None) -> dict[str, float]:
    """Return equal error rates of 4 s pairs, the second through each of `lines.CHANNELS`; repeatable.

    Names are `eer_4s_` and the channel.

    Raises:
        AudioError: An utterance does not decode.
        EngineError: The model failed.
        ValueError: There are no pairs of one reader, or of two.
    """
    read = utterances.read(folder, speakers)
    names = np.array([utterance.speaker for utterance in read for _ in cut_segments(utterance)])
    plain = np.array([engine.embed(piece) for utterance in read for piece in cut_segments(utterance)])
    rates = {}
    for name, channel in CHANNELS.items():
        heard = heard_through(channel, read, np.random.default_rng(SEED))
        vectors = np.array([engine.embed(piece) for utterance in heard for piece in cut_segments(utterance)])
        rates[f"eer_4s_{name}"] = equal_error(*_cross_pairs(plain, vectors, names))[0]
    return rates


def cut_segments(utterance: Utterance) -> list[Floats]:
    """Return the pieces of SEGMENT_S in an utterance, float32[n] each."""
    length = int(SEGMENT_S * SAMPLE_RATE)
    count = len(utterance.samples) // length
    return [utterance.samples[k * length : (k + 1) * length] for k in range(count)]


def _whole(utterance: Utterance, alone: bool) -> Sequence[Floats]:
    if not alone:
        return [utterance.samples]
    halves = np.array_split(utterance.samples, 2)
    return halves if len(halves[1]) >= SEGMENT_S * SAMPLE_RATE else []


def _plain_pairs(vectors: Floats, names: npt.NDArray[np.str_]) -> tuple[Scores, Scores]:
    """Return cosines (same-speaker pairs, different-speaker pairs) of unit vectors float32[n, d], each pair once."""
    first, second = np.triu_indices(len(names), 1)
    scores, same = (vectors @ vectors.T)[first, second], names[first] == names[second]
    return scores[same], scores[~same]


def _cross_pairs(vectors: Floats, others: Floats, names: npt.NDArray[np.str_]) -> tuple[Scores, Scores]:
    """Return the cosines (same-speaker pairs, different-speaker pairs) between `vectors` and `others`, float32[n, d].

    Row i of both is the same piece, which is not paired with itself.
    """
    scores, same = vectors @ others.T, names[:, np.newaxis] == names
    return scores[same & ~np.eye(len(names), dtype=bool)], scores[~same]


def equal_error(same: Scores, different: Scores) -> tuple[float, float]:
    """Return the (rate in 0..1, score) at which false rejections of `same` equal false acceptances of `different`.

    If no score balances them, return the score with the least difference and the mean of its two rates.

    Raises:
        ValueError: One of them is empty.
    """
    if not len(same) or not len(different):
        raise ValueError("an equal error rate needs pairs of one speaker and pairs of two")
    scores = np.unique(np.concatenate((same, different)))
    missed = np.searchsorted(np.sort(same), scores) / len(same)
    accepted = 1.0 - np.searchsorted(np.sort(different), scores) / len(different)
    at = int(np.argmin(np.abs(missed - accepted)))
    return float(missed[at] + accepted[at]) / 2.0, float(scores[at])
