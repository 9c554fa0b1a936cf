"""Blocks of PCM in a file of FLAC, which any player plays: it keeps the samples, and the capture times as a comment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from infra.disk import sync

RATE: Final = 16000
COMMENT: Final = "earshot_blocks"

#: A Unix time (ms) that calendars have.
Time = Annotated[int, Meta(ge=-62_135_596_800_000, lt=253_402_300_800_000)]


class Note(msgspec.Struct, frozen=True, array_like=True):
    """Something that happened to a source, and when (Unix time, ms)."""

    event: Literal["source.lost", "source.back", "source.silent"]
    at_ms: Time
    reason: str = ""


class Block(msgspec.Struct, frozen=True):
    """PCM with the Unix time (ms) of its first sample, and what happened before it; `late` if it was on the disk."""

    at_ms: int
    data: bytes
    notes: tuple[Note, ...] = ()
    late: bool = False


_decode: Final = msgspec.json.Decoder(list[tuple[Time, int, tuple[Note, ...]]]).decode


def write(path: Path, blocks: Sequence[Block]) -> int:
    """Write a file, which is whole and on the disk when this returns its size.

    Raises:
        OSError: it cannot be written.
    """
    import av
    import numpy as np

    fresh = path.with_suffix(".new")
    parts = [(block.at_ms, len(block.data) // 2, block.notes) for block in blocks]
    try:
        with av.open(str(fresh), "w", format="flac") as file:
            file.metadata[COMMENT] = msgspec.json.encode(parts).decode()
            stream = file.add_stream("flac", rate=RATE, layout="mono", format="s16")
            samples = np.frombuffer(b"".join(block.data for block in blocks), "<i2")
            frame = av.AudioFrame.from_ndarray(samples[None, :], format="s16", layout="mono")
            frame.sample_rate = RATE
            file.mux(stream.encode(frame))
            file.mux(stream.encode(None))
        sync(fresh)
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)  # The disk may be full.
        raise
    return path.stat().st_size


def read(path: Path) -> list[Block]:
    """Return the blocks of a file.

    Raises:
        OSError: it cannot be read.
        ValueError: it is damaged.
    """
    import av

    try:
        with av.open(str(path)) as file:
            parts = _decode(file.metadata[COMMENT])
            data = b"".join(bytes(frame.planes[0])[: frame.samples * 2] for frame in file.decode(audio=0))
    except (av.error.InvalidDataError, av.error.EOFError, LookupError, msgspec.MsgspecError):
        raise ValueError("it is damaged") from None
    blocks, at = [], 0
    for at_ms, samples, notes in parts:
        blocks.append(Block(at_ms, data[at : at + samples * 2], notes, late=True))
        at += samples * 2
    if at != len(data):
        raise ValueError("it is damaged")
    return blocks
