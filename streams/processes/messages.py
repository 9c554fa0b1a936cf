"""The messages between a zygote, its parent and what it forks."""

from typing import Final

import msgspec

#: The zygote sends its process id once it can fork, little-endian.
ID_BYTES: Final = 4
#: To the zygote: fork a process, which gets the socket, memory and file that come with it.
#: Without a file, the memory's descriptor is sent again.
FORK: Final = b"f"
#: To the zygote: fork a further zygote, whose parent has the other end of the socket that comes with it.
FURTHER: Final = b"z"
#: To the zygote: get ready to load models. It does not answer.
PREPARE: Final = b"p"
#: To the zygote: load the model in a directory; the name's length and the name follow. It answers with a fault in the
#: same form, empty on success.
LOAD: Final = b"l"
LENGTH_BYTES: Final = 4
#: Models that the zygote keeps; beyond this, it evicts the one loaded longest ago.
MOST_MODELS: Final = 16
DESCRIPTORS: Final = 3


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """A forked process is ready: its first message to the parent."""

    process: int
    #: Whether the kernel restricts it to the system calls that its work needs.
    filtered: bool
    models: tuple[str, ...] = ()


hello: Final = msgspec.msgpack.Decoder(Hello).decode
