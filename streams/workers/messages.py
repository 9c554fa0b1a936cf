"""What a worker process and its parent say to each other.

They share a memory of `SLOTS` equal slots and a socket that keeps the bounds of messages. The parent writes a request
into a free slot and sends the number of the slot, one byte; several requests go in one message. The worker writes its
answer over the request, and sends the number back, again several in one message. So audio is copied once into the
memory, and a wake-up serves as many requests as there are. A slot holds the length of its message (4 bytes, little
endian), the message in msgpack, and behind it, in a request, the audio.
"""

import struct
from typing import Final

import msgspec

from streams.audio.levels import Measures
from topics.hearing import Hearing
from topics.media import Media
from topics.sessions.records import Cursor

SLOTS: Final = 8
#: Bytes of a slot beside a chunk: what is said of it.
HEADER_BYTES: Final = 1 << 18
LENGTH: Final = struct.Struct("<I")
#: A message of the socket: slot numbers, or the first word of a worker.
LINE_BYTES: Final = 4096


def memory_bytes(chunk_bytes: int) -> int:
    """Return the size of a memory whose slots hold the largest chunk, or a step. Unused pages cost nothing."""
    return SLOTS * (max(chunk_bytes, 8 << 20) + HEADER_BYTES)


class Beginning(msgspec.Struct, frozen=True, array_like=True):
    """What a worker needs to know of a session before its first step."""

    model: str
    window_ms: int
    hop_ms: int
    media: Media
    cursor: Cursor
    #: Windows that are settled.
    windows: int
    #: Each chunk is a window of its own.
    predicts: bool = False
    #: The steps bring samples, decoded elsewhere, instead of chunks.
    decoded: bool = False
    hearing: Hearing = Hearing()


class Step(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Analyse the next audio of a session, which lies behind this message."""

    #: Names the session's state in the worker.
    session: int
    #: Set with the first step, or when the worker has no state of the session.
    beginning: Beginning | None = None
    #: Bytes of each chunk, or of the samples.
    lengths: tuple[int, ...] = ()
    #: No audio follows.
    last: bool = False
    #: It is short, so it may be scored together with steps of other sessions.
    together: bool = False
    #: Somebody listens: measure the level, and make the spectrogram.
    measured: bool = False
    drawn: bool = False
    #: Sessions whose state is needed no more.
    forget: tuple[int, ...] = ()
    #: Audio would follow, but cannot be read.
    broken: bool = False


class Segment(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Score the windows of a piece of a recording: float32 samples behind this message."""

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
    #: Audio would follow, but cannot be read.
    broken: bool = False
    hearing: Hearing = Hearing()


class Scored(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What a step gave: packed scores of consecutive windows, and where the analysis stands."""

    first: int
    packed: bytes
    cursor: Cursor
    #: Chunks taken so far.
    taken: int
    #: A chunk is longer than a step: the next step goes on with it and takes no others.
    reading: bool = False
    #: Why the audio after these windows cannot be analysed.
    error: str | None = None
    measures: Measures | None = None


class SegmentScores(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The scores of a segment's windows, float32[windows, tags], with own columns behind the tags."""

    scores: bytes


class Fault(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The request failed; a session's state is gone."""

    message: str
    #: The audio's own, else the model's or this program's.
    audio: bool = False
    engine: bool = False


class Forgotten(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The worker has no state of the session: begin it again."""


Request = Step | Segment
Answer = Scored | SegmentScores | Fault | Forgotten

encode: Final = msgspec.msgpack.Encoder().encode
request: Final = msgspec.msgpack.Decoder(Request).decode
answer: Final = msgspec.msgpack.Decoder(Answer).decode
