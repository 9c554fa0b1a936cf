"""16-bit PCM, alone and in WAV files: the format that engines receive."""

import io
import struct
import wave
from typing import Final

import numpy as np

from streams.audio import pcm as raw
from streams.audio.claims import MAX_CHUNKS
from streams.audio.decode import DecodedAudio
from streams.models.protocol import Floats
from topics.media import MAX_CHANNELS, MAX_RATE, MIN_RATE

SAMPLE_BYTES: Final = 2
#: A chunk's name and length; the offset of the first chunk; the format chunk's fields; the only format read.
_CHUNK: Final = struct.Struct("<4sI")
_FIRST_CHUNK: Final = 12
_FORMAT: Final = struct.Struct("<HHIIHH")
_INTEGERS: Final = 1


def to_pcm16(samples: Floats) -> bytes:
    """Convert float32[n] to 16-bit integers, little-endian; samples beyond -1..1 are clipped."""
    scaled = samples * np.float32(32768)
    np.clip(scaled, -32768, 32767, out=scaled)
    np.rint(scaled, out=scaled)
    return scaled.astype("<i2").tobytes()


def from_pcm16(data: bytes) -> Floats:
    """Convert 16-bit integers, little-endian, to float32[n] in -1..1."""
    return np.frombuffer(data, "<i2").astype(np.float32) / np.float32(32768)


def looks_plain(data: bytes) -> bool:
    """Return whether a file begins like most files that `read_plain` reads."""
    return data[:4] == b"RIFF" and data[8:16] == b"WAVEfmt " and data[20:22] == b"\x01\x00"


def read_plain(data: bytes) -> DecodedAudio | None:
    """Return the audio of a WAV file of 16-bit integers, channels averaged; None for any other file.

    Uses no decoder library, so it is safe for untrusted files in this process.
    """
    fields: tuple[int, ...] = ()
    at = _FIRST_CHUNK
    # Without a bound, a file of many small chunks would take seconds.
    for _ in range(MAX_CHUNKS if data[:4] == b"RIFF" and data[8:12] == b"WAVE" else 0):
        if len(data) < at + _CHUNK.size:
            break
        name, size = _CHUNK.unpack_from(data, at)
        at += _CHUNK.size
        if name == b"data":
            return _samples(memoryview(data)[at : at + size], *fields) if fields else None
        if name == b"fmt " and len(data) >= at + _FORMAT.size <= at + size:
            fields = _FORMAT.unpack_from(data, at)
        at += size + size % 2
    return None


def _samples(
    data: memoryview, kind: int, channels: int, rate: int, _: int, frame: int, bits: int
) -> DecodedAudio | None:
    supported = 1 <= channels <= MAX_CHANNELS and MIN_RATE <= rate <= MAX_RATE
    if (
        not supported
        or (kind, bits, frame) != (_INTEGERS, 8 * SAMPLE_BYTES, SAMPLE_BYTES * channels)
        or len(data) < frame
    ):
        return None
    whole = len(data) // frame * frame
    return DecodedAudio(rate, raw.to_mono(raw.decode_unchecked(data[:whole], "s16le", channels)))


def wav_file(data: bytes, rate: int) -> bytes:
    """Wrap 16-bit integers, little-endian, in a mono WAV file of `rate` Hz."""
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(SAMPLE_BYTES)
        file.setframerate(rate)
        file.writeframes(data)
    return out.getvalue()


def encode(samples: Floats, rate: int) -> bytes:
    """Encode float32[n] in -1..1 as a mono 16-bit WAV file of `rate` Hz."""
    return wav_file(to_pcm16(samples), rate)
