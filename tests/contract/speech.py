"""Recordings for tests of jobs: speech, and damaged files."""

import numpy as np
import soundfile

from tests.audio import encoded
from tests.contract.api import RATE, tone
from tests.recordings import TWO_READERS


def spoken(seconds: int = 8) -> bytes:
    """Return speech by two readers as a WAV."""
    frames = seconds * RATE // 2
    parts = [soundfile.read(file, dtype="int16", frames=frames)[0] for file in TWO_READERS]
    assert [len(part) for part in parts] == [frames, frames]
    return encoded(np.concatenate(parts), RATE)


def broken_flac() -> bytes:
    """Return 20 s of FLAC that is damaged from its middle on."""
    samples = np.frombuffer(tone(20.0), np.int16) + np.random.default_rng(1).integers(-500, 500, 20 * RATE, np.int16)
    whole = bytearray(encoded(samples, RATE, "FLAC"))
    middle = len(whole) // 2
    whole[middle : middle + 20_000] = np.random.default_rng(2).bytes(20_000)
    return bytes(whole)
