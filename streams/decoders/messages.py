"""What a decoder process and its parent say to each other.

They share a socket that keeps the bounds of messages, a memory of `MEMORY_BYTES` for samples, and a file: a recording,
or an inbox in memory to which the parent writes one file after the other. A decoder first sends a `Hello`.
Each request is answered by one `Reply` or more; all but the last announce a block of samples, which lies in the slots
of the memory in turn, and the last has an `End`. The parent sends `NEXT` when it has taken a block that was not the
last: so many blocks as there are slots may wait for it.
"""

import mmap
from typing import Final

import msgspec

from streams.audio.decode import Claim
from topics.media import Media

#: From the zygote, once, when decoders can be had; to it for each, with its socket, its memory and its file.
READY: Final = b"r"
FORK: Final = b"f"
#: The same for a decoder that has an inbox.
FORK_INBOX: Final = b"i"
#: The same for a worker (`streams.workers.messages`); its file is of no use.
FORK_WORKER: Final = b"w"
#: To the zygote: get ready to load models. Nothing comes back.
PREPARE: Final = b"p"
#: To the zygote: load the model in a directory, whose name follows, its length first. Back comes the fault in the same
#: way, empty if there is none.
LOAD: Final = b"l"
LENGTH_BYTES: Final = 4
#: Models that the zygote keeps; with more, the one that was loaded longest ago goes.
MOST_MODELS: Final = 16
#: Bytes of an inbox that its decoder may change, which is as long while no file is there.
BEGINNING_BYTES: Final = mmap.PAGESIZE
DESCRIPTORS: Final = 3
SLOTS: Final = 2
#: Samples of one slot: a block has at most so many, of all channels before they are mixed.
SLOT_SAMPLES: Final = 1 << 17
SLOT_BYTES: Final = 4 * SLOT_SAMPLES
MEMORY_BYTES: Final = SLOTS * SLOT_BYTES
#: A message fits in one read.
MESSAGE_BYTES: Final = 4096
FAULT_CHARACTERS: Final = 512
NEXT: Final = b"n"


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """A decoder or worker is ready."""

    process: int
    #: The kernel lets it make no system calls but those that its work needs.
    filtered: bool
    #: The models that a worker has.
    models: tuple[str, ...] = ()


class Request(msgspec.Struct, frozen=True, array_like=True):
    """Decode the file."""

    media: Media
    longest_s: int
    block_samples: int


class Header(msgspec.Struct, frozen=True, array_like=True):
    """What an opened file is: Hz, channels, and frames that it claims."""

    rate: int
    channels: int
    frames: int | None
    claim: Claim


class End(msgspec.Struct, frozen=True, array_like=True):
    """There are no more blocks: the file has ended, or the reason."""

    #: A fault of the audio.
    fault: str | None = None
    #: The fault is that it is longer than is allowed.
    too_long: bool = False
    #: The file could not be read, for this `errno`.
    disk: int | None = None


class Reply(msgspec.Struct, frozen=True, array_like=True):
    """A header with the first reply; samples of the block in the next slot; where the decoder is in the file."""

    header: Header | None = None
    samples: int = 0
    position: int = 0
    end: End | None = None


encode: Final = msgspec.msgpack.Encoder().encode
hello: Final = msgspec.msgpack.Decoder(Hello).decode
request: Final = msgspec.msgpack.Decoder(Request).decode
reply: Final = msgspec.msgpack.Decoder(Reply).decode
