"""LibriSpeech utterances, one per reader, for training and evaluating speaker embeddings."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import soundfile

from infra.lab.evaluation.recordings import read_rows
from streams.audio.resample import resample
from streams.models.protocol import Floats
from topics.errors import AudioError

SAMPLE_RATE: Final = 16_000


class Utterance(msgspec.Struct, frozen=True):
    """An utterance of one reader: float32[n] in -1..1 at SAMPLE_RATE."""

    speaker: str
    samples: Floats


def read(folder: Path, speakers: Iterable[str] | None = None) -> list[Utterance]:
    """Read the utterances listed in `utterances.csv` in `folder`, of all readers or some, in order of speaker.

    Raises:
        AudioError: A file is missing, does not decode, or is not mono at SAMPLE_RATE.
        BadRequest: The table is missing, or lacks a column.
    """
    chosen = None if speakers is None else set(speakers)
    rows = read_rows(folder / "utterances.csv", ("file", "speaker"))
    return [
        Utterance(row["speaker"], read_samples(folder / f"{row['file']}.ogg"))
        for row in sorted(rows, key=lambda row: (row["speaker"], row["file"]))
        if chosen is None or row["speaker"] in chosen
    ]


def read_samples(path: Path) -> Floats:
    """Return a recording of any length, float32[n] at SAMPLE_RATE.

    Raises:
        AudioError: It cannot be read or does not decode, or is not mono at SAMPLE_RATE.
    """
    try:
        samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    except (OSError, soundfile.SoundFileError) as error:
        raise AudioError(f"{path}: {error}") from error
    if rate != SAMPLE_RATE or samples.shape[1] != 1:
        raise AudioError(f"{path}: {samples.shape[1]} channels at {rate} Hz, expected one at {SAMPLE_RATE}")
    mono: Floats = samples[:, 0]
    return mono


def at_speed(samples: Floats, percent: int) -> Floats:
    """Return samples played at `percent` of their speed, which also moves pitch and formants."""
    if percent == 100:
        return samples
    return resample(samples, SAMPLE_RATE * percent // 100, SAMPLE_RATE)


def folds(speakers: Iterable[str], count: int, seed: int = 0) -> list[list[str]]:
    """Split readers at random into `count` sorted groups whose sizes differ by at most one."""
    names = np.array(sorted(set(speakers)))
    order = np.random.default_rng(seed).permutation(len(names))
    return [sorted(names[order[start::count]].tolist()) for start in range(count)]
