"""Samples of 16 bits, alone and as a WAV file: what engines that other programs run can read."""

from __future__ import annotations

import io
import wave
from typing import Final

import numpy as np

from streams.audio import pcm as raw
from streams.audio.decode import Pcm
from streams.engines.protocol import Floats
from topics.media import MAX_CHANNELS, MAX_RATE, MIN_RATE

SAMPLE_BYTES: Final = 2


def pcm(samples: Floats) -> bytes:
    """Return float32[n] as 16-bit integers, little-endian; loud samples are clipped, as a player would."""
    scaled = samples * np.float32(32768)
    np.clip(scaled, -32768, 32767, out=scaled)
    np.rint(scaled, out=scaled)
    return scaled.astype("<i2").tobytes()


def floats(data: bytes) -> Floats:
    """Return what `pcm` was given, float32[n] in -1..1, as exactly as 16 bits are."""
    return np.frombuffer(data, "<i2").astype(np.float32) / np.float32(32768)


def looks_plain(data: bytes) -> bool:
    """Tell whether a file begins as most of those do that `plain` reads."""
    return data[:4] == b"RIFF" and data[8:16] == b"WAVEfmt " and data[20:22] == b"\x01\x00"


def plain(data: bytes) -> Pcm | None:
    """Return what is in a WAV file of 16-bit integers, channels averaged; None of any other file.

    It needs no decoder, so that a stranger's file can be read where one that broke something would break much.
    """
    try:
        with wave.open(io.BytesIO(data)) as file:
            rate, channels, width = file.getframerate(), file.getnchannels(), file.getsampwidth()
            frames = file.readframes(file.getnframes())
    except (wave.Error, EOFError, RuntimeError):  # the last of a chunk that ends nowhere
        return None
    if width != SAMPLE_BYTES or not (MIN_RATE <= rate <= MAX_RATE and channels <= MAX_CHANNELS and frames):
        return None
    whole = len(frames) // (width * channels) * (width * channels)
    return Pcm(rate, raw.mono(raw.unchecked(memoryview(frames)[:whole], "s16le", channels)))


def file(data: bytes, rate: int) -> bytes:
    """Return a WAV file of what `pcm` returned."""
    out = io.BytesIO()
    with wave.open(out, "wb") as made:
        made.setnchannels(1)
        made.setsampwidth(SAMPLE_BYTES)
        made.setframerate(rate)
        made.writeframes(data)
    return out.getvalue()
