"""Decodes an uploaded recording completely to mono samples at a model's rate."""

from typing import BinaryIO, Final

import numpy as np

from streams.audio import decode, wav
from streams.models.protocol import Floats
from topics import media

LONGEST_S: Final = 600
#: CPU time for one recording. Ten minutes of stereo take about three seconds, but a few megabytes of FLAC can hold ten
#: minutes of sixteen silent channels at 384 kHz.
CPU_SECONDS: Final = 20.0
PLAIN_BYTES: Final = 4 * 1024 * 1024


def load(file: BinaryIO, rate: int) -> Floats:
    """Decode a seekable file to mono float32[n] at `rate` Hz; the format is detected from the content.

    Raises:
        AudioError: it cannot be decoded within CPU_SECONDS, or is longer than LONGEST_S.
    """
    data = file.read(PLAIN_BYTES)
    file.seek(0)
    # Most recordings are plain WAV, which this reader decodes twice as fast.
    plain = wav.read_plain(data) if len(data) < PLAIN_BYTES and wav.looks_plain(data) else None
    if plain is not None and plain.rate == rate and len(plain.samples) <= LONGEST_S * rate:
        return plain.samples
    audio = decode.open_file(file, media.parse("application/octet-stream"), LONGEST_S)
    if audio.rate == rate:
        return np.concatenate(list(audio.blocks(CPU_SECONDS)))
    # Compiled code; imported only when needed.
    from streams.audio.resample import Resampler

    resampler = Resampler(audio.rate, rate)
    parts = [resampler.feed(block) for block in audio.blocks(CPU_SECONDS)]
    return np.concatenate([*parts, resampler.finish()])
