"""The messages between a worker process and its parent.

Both share a memory of slots and a socket that preserves message boundaries. The parent writes a request into a free
slot and sends the slot's number, one byte; one message may carry several. The worker overwrites the request with its
answer and sends the number back, again several at a time. So audio is copied once into the memory, and one wake-up
serves all waiting requests. A slot holds the message's length (4 bytes, little-endian), the message in msgpack and, in
a request, the audio.
"""

import mmap
import struct
from itertools import pairwise
from typing import Final

import msgspec

from streams.audio.levels import Measures
from topics.hearing import Hearing
from topics.media import Media
from topics.sessions.records import Cursor

#: Slots for any request, and further ones for those with little audio, such as most steps of live sessions: so a worker
#: has work until the parent's loop has read its answers.
SLOTS: Final = 8
SMALL_SLOTS: Final = 24
SMALL_SLOT_BYTES: Final = 1 << 20
SMALL_AUDIO_BYTES: Final = 1 << 16
#: Audio that any of the other slots holds.
AUDIO_BYTES: Final = 8 << 20
#: Bytes of a slot for everything except the chunk.
HEADER_BYTES: Final = 1 << 18
LENGTH: Final = struct.Struct("<I")
#: Bytes of a socket message: slot numbers, or a worker's greeting.
LINE_BYTES: Final = 4096


def slot_bytes(chunk_bytes: int) -> int:
    """Return the size of a slot that holds the largest chunk or a step."""
    return max(chunk_bytes, AUDIO_BYTES) + HEADER_BYTES


def memory_bytes(size: int) -> int:
    """Return the size of a memory with `SLOTS` slots of this size, and the small ones. Unused pages cost nothing."""
    return SLOTS * size + SMALL_SLOTS * SMALL_SLOT_BYTES


def slots_of(memory: mmap.mmap) -> list[memoryview]:
    """Return the slots of a memory by number, the small ones last."""
    size, view = (len(memory) - SMALL_SLOTS * SMALL_SLOT_BYTES) // SLOTS, memoryview(memory)
    starts = [*range(0, SLOTS * size, size), *range(SLOTS * size, len(memory), SMALL_SLOT_BYTES)]
    return [view[start:stop] for start, stop in pairwise([*starts, len(memory)])]


class Beginning(msgspec.Struct, frozen=True, array_like=True):
    """What a worker must know about a session before its first step."""

    model: str
    window_ms: int
    hop_ms: int
    media: Media
    cursor: Cursor
    #: Number of settled windows.
    windows: int
    #: Each chunk is a separate window.
    predicts: bool = False
    #: Steps carry samples decoded elsewhere instead of chunks.
    decoded: bool = False
    hearing: Hearing = Hearing()


class Step(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Analyse the next audio of a session, which follows this message."""

    #: Identifies the session's state in the worker.
    session: int
    #: Set with the first step, or if the worker has no state of the session.
    beginning: Beginning | None = None
    #: Bytes of each chunk or of the samples.
    lengths: tuple[int, ...] = ()
    #: No audio follows.
    last: bool = False
    #: It is short, so it may be scored with steps of other sessions.
    together: bool = False
    #: There are listeners: measure the level, and compute the spectrogram.
    measured: bool = False
    drawn: bool = False
    #: Sessions whose state to drop.
    forget: tuple[int, ...] = ()
    #: More audio exists but cannot be read.
    broken: bool = False


class Segment(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Score the windows of a piece of a recording; float32 samples follow this message."""

    model: str
    #: Bytes of the samples.
    length: int
    rate: int
    #: Position of the first sample.
    at: int
    #: Index of the first window.
    first: int
    #: The recording ends here.
    last: bool
    #: More audio exists but cannot be read.
    broken: bool = False
    hearing: Hearing = Hearing()


class Scored(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The result of a step: packed scores of consecutive windows, and the analysis's position."""

    first: int
    packed: bytes
    cursor: Cursor
    #: Chunks taken so far.
    taken: int
    #: A chunk is longer than a step: the next step continues it and takes no others.
    reading: bool = False
    #: Why the audio after these windows cannot be analysed.
    error: str | None = None
    measures: Measures | None = None


class SegmentScores(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The scores of a segment's windows, float32[windows, tags], with the project's own columns after the tags."""

    scores: bytes


class Fault(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The request failed, and the session's state is dropped."""

    message: str
    #: Whether the audio or the engine is at fault; if neither, the worker's program.
    audio: bool = False
    engine: bool = False


class Forgotten(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The worker has no state of the session; begin it again."""


Request = Step | Segment
Answer = Scored | SegmentScores | Fault | Forgotten

encode: Final = msgspec.msgpack.Encoder().encode
request: Final = msgspec.msgpack.Decoder(Request).decode
answer: Final = msgspec.msgpack.Decoder(Answer).decode
