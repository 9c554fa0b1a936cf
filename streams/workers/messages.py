"""The messages between a worker process and its parent.

Both share a memory of slots and a socket that preserves message boundaries. The parent writes a request into a free
slot and sends the slot's number, one byte; one message may carry several. The worker overwrites the request with its
answer and sends the number back, again several at a time. So audio is copied once into the memory, and one wake-up
serves all waiting requests. A slot holds the message's length (4 bytes, little-endian), the message in msgpack and, in
a request, the audio.

A worker may have a file: the recording of a job or voice, or the gathered chunks of a file session. Then its requests
carry no audio. It serves nobody else, so nobody waits for it.
"""

import mmap
import struct
from itertools import pairwise
from typing import Final

import msgspec

from streams.audio.levels import Measures
from topics.geometry import Geometry
from topics.hearing import Hearing
from topics.media import Container, Media
from topics.sessions.records import Cursor

#: Slots for any request, and further ones for those with little audio, such as most steps of live sessions: so a worker
#: has work until the parent's loop has read its answers.
SLOTS: Final = 8
SMALL_SLOTS: Final = 24
SMALL_SLOT_BYTES: Final = 1 << 20
SMALL_AUDIO_BYTES: Final = 1 << 16
#: Audio that any of the other slots holds at least.
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
    #: The audio is the worker's file, and steps carry no chunks.
    file: bool = False
    hearing: Hearing = Hearing()

    @property
    def geometry(self) -> Geometry:
        return Geometry(self.window_ms, self.hop_ms)


class Step(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Analyse the next audio of a session, which follows this message."""

    #: Identifies the session's state in the worker.
    session: int
    #: Set with the first step, or if the worker has no state of the session.
    beginning: Beginning | None = None
    #: Bytes of each chunk.
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


class Segment(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Score the windows of a segment of the file: pieces of some seconds, numbered from 0."""

    number: int
    media: Media
    model: str
    hearing: Hearing = Hearing()


class Read(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Decode the next block of the file; blocks are numbered from 0, which opens the file again."""

    number: int
    media: Media
    longest_s: int
    #: Samples of a block, over all channels before they are mixed.
    block_samples: int


class ScoredWindows(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The result of a step: packed scores of consecutive windows, and the analysis's position."""

    first: int
    packed: bytes
    cursor: Cursor
    #: Chunks taken so far.
    taken: int
    #: There is more of a chunk, or of the file: the next step continues it and takes no other chunks.
    reading: bool = False
    #: Why the audio after these windows cannot be analysed.
    error: str | None = None
    measures: Measures | None = None
    #: Windows (first, end) of a file so far that lie in its gaps; no model heard them.
    silent: tuple[tuple[int, int], ...] = ()


class RecordingEnd(msgspec.Struct, frozen=True, array_like=True):
    """How a recording ended, and its length (ms)."""

    audio_ms: int
    #: Why it ended early.
    fault: str | None
    #: What is wrong with the audio, though it was read.
    warning: str | None
    #: Milliseconds of silence that the file does not hold.
    silence_ms: int


class SegmentScores(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The scores of a segment's windows, float32[windows, tags], with the project's own columns after the tags.

    Without scores, the recording has no such segment, or, if it did not end either, the worker has not come to it yet:
    ask again.
    """

    scores: bytes | None = None
    #: Share of the file that was read, 0 to 1.
    share: float = 0.0
    end: RecordingEnd | None = None


class Header(msgspec.Struct, frozen=True, array_like=True):
    """The properties of an opened file: rate in Hz, channels, claimed frames, and container."""

    rate: int
    channels: int
    frames: int | None
    kind: Container


class Block(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Decoded audio: a number of samples of `silence` that the file does not hold, then float32 samples.

    The samples follow this message in the slot.
    """

    #: With the first block.
    header: Header | None = None
    silence: int = 0
    #: Bytes of the samples.
    length: int = 0
    #: Position in the file.
    position: int = 0
    #: With the last block: what is wrong with the audio, though it was read.
    notes: tuple[str, ...] | None = None


class Fault(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The request failed, and the session's state is dropped."""

    message: str
    #: Whether the audio or the engine is at fault; if neither, the worker's program.
    audio: bool = False
    engine: bool = False
    #: The audio exceeds the maximum length.
    too_long: bool = False
    #: The file cannot be read.
    disk: int | None = None


class Forgotten(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The worker has no state of the session; begin it again."""


Request = Step | Segment | Read
Answer = ScoredWindows | SegmentScores | Block | Fault | Forgotten

encode: Final = msgspec.msgpack.Encoder().encode
request: Final = msgspec.msgpack.Decoder(Request).decode
answer: Final = msgspec.msgpack.Decoder(Answer).decode
