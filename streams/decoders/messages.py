"""The messages between a decoder process and its parent.

They share a socket that preserves message boundaries, a memory of `MEMORY_BYTES` for samples, and a file: a recording,
or an inbox in memory to which the parent writes files one after another. A decoder first sends a `Hello`. It answers
each request with one or more `Reply`s; all but the last announce a block of samples in the next slot of the memory, and
the last has an `End`. The parent sends `NEXT` after taking a block that was not the last: as many blocks may wait for
it as there are slots.
"""

import mmap
from typing import Final

import msgspec

from streams.audio.decode import Claim
from topics.media import Media

#: The zygote sends READY once it can fork; each FORK to it carries the decoder's socket, memory and file.
READY: Final = b"r"
FORK: Final = b"f"
#: FORK for a decoder with an inbox.
FORK_INBOX: Final = b"i"
#: FORK for a worker (`streams.workers.messages`), which ignores the file.
FORK_WORKER: Final = b"w"
#: To the zygote: get ready to load models. It does not answer.
PREPARE: Final = b"p"
#: To the zygote: load the model in a directory; the name's length and the name follow. It answers with a fault in the
#: same form, empty on success.
LOAD: Final = b"l"
LENGTH_BYTES: Final = 4
#: Models that the zygote keeps; beyond this, it evicts the one loaded longest ago.
MOST_MODELS: Final = 16
#: Leading bytes of an inbox that its decoder may change; also the inbox's size while empty.
BEGINNING_BYTES: Final = mmap.PAGESIZE
DESCRIPTORS: Final = 3
SLOTS: Final = 2
#: Samples of one slot; bounds a block, over all channels before they are mixed.
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
    #: Whether the kernel restricts it to the system calls that its work needs.
    filtered: bool
    models: tuple[str, ...] = ()


class Request(msgspec.Struct, frozen=True, array_like=True):
    """Decode the file."""

    media: Media
    longest_s: int
    block_samples: int


class Header(msgspec.Struct, frozen=True, array_like=True):
    """The properties of an opened file: rate in Hz, channels, and claimed frames."""

    rate: int
    channels: int
    frames: int | None
    claim: Claim


class End(msgspec.Struct, frozen=True, array_like=True):
    """No more blocks follow; the fields give the reason, unless the file ended."""

    #: What is wrong with the audio.
    fault: str | None = None
    #: True if the audio exceeds the maximum length.
    too_long: bool = False
    #: The `errno` if the file could not be read.
    disk: int | None = None


class Reply(msgspec.Struct, frozen=True, array_like=True):
    """A header with the first reply; samples of the block in the next slot; the decoder's position in the file."""

    header: Header | None = None
    samples: int = 0
    position: int = 0
    end: End | None = None


encode: Final = msgspec.msgpack.Encoder().encode
hello: Final = msgspec.msgpack.Decoder(Hello).decode
request: Final = msgspec.msgpack.Decoder(Request).decode
reply: Final = msgspec.msgpack.Decoder(Reply).decode
