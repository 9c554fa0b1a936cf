"""Samples of 16 bits, alone and as a WAV file: what engines that other programs run can read."""

from __future__ import annotations

import io
import struct
import wave
from typing import Final

import numpy as np

from streams.audio import pcm as raw
from streams.audio.decode import DecodedAudio
from streams.models.protocol import Floats
from topics.media import MAX_CHANNELS, MAX_RATE, MIN_RATE

SAMPLE_BYTES: Final = 2
#: More come before the samples of no file that somebody has made to be heard.
MAX_CHUNKS: Final = 64
#: Chunks begin with their name and length; where the first one does; the format's, and the format that is read.
_CHUNK: Final = struct.Struct("<4sI")
_FIRST_CHUNK: Final = 12
_FORMAT: Final = struct.Struct("<HHIIHH")
_INTEGERS: Final = 1


def to_pcm16(samples: Floats) -> bytes:
    """Return float32[n] as 16-bit integers, little-endian; loud samples are clipped, as a player would."""
    scaled = samples * np.float32(32768)
    np.clip(scaled, -32768, 32767, out=scaled)
    np.rint(scaled, out=scaled)
    return scaled.astype("<i2").tobytes()


def from_pcm16(data: bytes) -> Floats:
    """Return what `to_pcm16` was given, float32[n] in -1..1, as exactly as 16 bits are."""
    return np.frombuffer(data, "<i2").astype(np.float32) / np.float32(32768)


def looks_plain(data: bytes) -> bool:
    """Tell whether a file begins as most of those do that `read_plain` reads."""
    return data[:4] == b"RIFF" and data[8:16] == b"WAVEfmt " and data[20:22] == b"\x01\x00"


def read_plain(data: bytes) -> DecodedAudio | None:
    """Return what is in a WAV file of 16-bit integers, channels averaged; None of any other file.

    It needs no decoder, so that a stranger's file can be read where one that broke something would break much.
    """
    found: tuple[int, ...] = ()
    at = _FIRST_CHUNK
    # A file of little else than chunks would take seconds.
    for _ in range(MAX_CHUNKS if data[:4] == b"RIFF" and data[8:12] == b"WAVE" else 0):
        if len(data) < at + _CHUNK.size:
            break
        name, size = _CHUNK.unpack_from(data, at)
        at += _CHUNK.size
        if name == b"data":
            return _samples(memoryview(data)[at : at + size], *found) if found else None
        if name == b"fmt " and len(data) >= at + _FORMAT.size <= at + size:
            found = _FORMAT.unpack_from(data, at)
        at += size + size % 2
    return None


def _samples(
    data: memoryview, kind: int, channels: int, rate: int, _: int, frame: int, bits: int
) -> DecodedAudio | None:
    sound = 1 <= channels <= MAX_CHANNELS and MIN_RATE <= rate <= MAX_RATE
    if not sound or (kind, bits, frame) != (_INTEGERS, 8 * SAMPLE_BYTES, SAMPLE_BYTES * channels) or len(data) < frame:
        return None
    whole = len(data) // frame * frame
    return DecodedAudio(rate, raw.to_mono(raw.decode_unchecked(data[:whole], "s16le", channels)))


def wav_file(data: bytes, rate: int) -> bytes:
    """Return a WAV file of what `to_pcm16` returned."""
    out = io.BytesIO()
    with wave.open(out, "wb") as made:
        made.setnchannels(1)
        made.setsampwidth(SAMPLE_BYTES)
        made.setframerate(rate)
        made.writeframes(data)
    return out.getvalue()
