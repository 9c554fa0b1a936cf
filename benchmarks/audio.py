"""Seeded audio: half seconds of raw PCM, the same for every contender."""

import random
from pathlib import Path
from typing import Final

RATE: Final = 16_000
CONTENT_TYPE: Final = f"audio/x-raw; rate={RATE}; format=s16le"
#: 0.5 s of 16-bit mono, about 16 KB.
CHUNK_BYTES: Final = RATE
SECONDS: Final = 0.5
#: Different chunks per stream, repeated in turn.
DISTINCT: Final = 4


def chunk(stream: int, number: int, size: int = CHUNK_BYTES) -> bytes:
    """Return a chunk of a stream: white noise, which costs a model as much as any other audio."""
    return random.Random(f"{stream}-{number % DISTINCT}").randbytes(size)


def chunks(stream: int) -> list[bytes]:
    return [chunk(stream, number) for number in range(DISTINCT)]


def recorded(file: Path) -> list[bytes]:
    """Return the whole chunks in a file of raw audio of CONTENT_TYPE."""
    data = file.read_bytes()
    return [data[start : start + CHUNK_BYTES] for start in range(0, len(data) - CHUNK_BYTES + 1, CHUNK_BYTES)]
