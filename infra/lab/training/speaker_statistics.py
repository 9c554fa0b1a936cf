"""Feature statistics of crops of utterances, at several speeds and through random channels."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import onnxruntime

from infra.lab.evaluation.channels import through_channel
from infra.lab.evaluation.utterances import Utterance, at_speed
from infra.lab.training.speaker_graph import VARIANCE_FLOOR
from infra.lab.training.speaker_trunk import STRIDES
from streams.models.protocol import Floats

#: Speeds in per cent; a reader at another speed counts as another voice, as in Yamamoto et al. 2019.
SPEEDS: Final = (90, 100, 110)
#: Extra crops of each voice through random channels.
CHANNELS: Final = 3
#: Log-mel frames per block, 10 ms each: a whole number of columns of each map.
BLOCK: Final = 96
#: Minimum and maximum blocks of a crop.
CROP: Final = (2, 4)


class Crops(msgspec.Struct, frozen=True):
    """Statistics of crops, float16[crops, features], and the number of each crop's voice, int[crops]."""

    statistics: npt.NDArray[np.float16]
    voices: npt.NDArray[np.intp]


def crops(
    trunk: onnxruntime.InferenceSession, utterances: Sequence[Utterance], speed: int, channel: bool, seed: int
) -> Crops:
    """Return crops of 2 to 4 blocks, one starting at each block; voices are numbered by utterance.

    An utterance shorter than a block gives none.
    """
    rng = np.random.default_rng([seed, speed])
    features, voices = [], []
    for voice, utterance in enumerate(utterances):
        samples = at_speed(utterance.samples, speed)
        if channel:
            samples = through_channel(samples, rng)
        for statistics in _crop_statistics(*_blocks(trunk, samples), rng):
            features.append(statistics.astype(np.float16))
            voices.append(voice)
    return Crops(np.array(features), np.array(voices))


def _blocks(trunk: onnxruntime.InferenceSession, samples: Floats) -> tuple[Floats, Floats]:
    """Return (mean, mean square) over time of every feature in each block, float32[blocks, features] both."""
    maps = [feature_map[0] for feature_map in trunk.run(None, {"samples": samples[np.newaxis]})]
    count = maps[0].shape[1] // BLOCK
    means: list[Floats] = []
    squares: list[Floats] = []
    for feature_map, stride in zip(maps, STRIDES, strict=True):
        columns = BLOCK // stride
        blocks = (
            feature_map[:, : count * columns]
            .reshape(len(feature_map), count, columns, feature_map.shape[2])
            .swapaxes(0, 1)
        )
        for sums, values in ((means, blocks), (squares, blocks**2)):
            sums.append(values.mean(axis=2).reshape(count, len(feature_map) * feature_map.shape[2]))
    return np.concatenate(means, axis=1), np.concatenate(squares, axis=1)


def _crop_statistics(means: Floats, squares: Floats, rng: np.random.Generator) -> Iterator[Floats]:
    """Yield the statistics of a crop from each block except the last: means, then deviations, as in the graph."""
    for start in range(max(min(1, len(means)), len(means) - 1)):
        end = start + int(rng.integers(CROP[0], CROP[1] + 1))
        mean = means[start:end].mean(axis=0)
        variance = np.maximum(squares[start:end].mean(axis=0) - mean**2, 0.0)
        yield np.concatenate((mean, np.sqrt(variance + VARIANCE_FLOOR)))
