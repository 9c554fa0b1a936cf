"""Audio files: detects their content type from the first bytes, and prepares them for sessions and jobs."""

import re
from os import SEEK_END
from pathlib import Path
from typing import BinaryIO, Final

from ._errors import UnknownFormat
from ._service_values import BEGINNINGS, HEAD, KINDS
from ._session_values import Sensitivity, SessionOptions

#: Bytes of a file session's chunk, as the interface advises.
CHUNK: Final = 1024 * 1024
#: The type of a file whose format the service finds out.
OCTETS: Final = "application/octet-stream"

#: A tag may precede audio of any kind.
_BEGINNINGS: Final = {OCTETS: rb"ID3|APETAGEX", **BEGINNINGS}
_SAMPLE: Final = re.compile(r'(?i)^\s*audio/x-raw\s*;.*format\s*=\s*"?[suf](8|16|24|32)')
_CHANNELS: Final = re.compile(r'(?i)channels\s*=\s*"?(\d{1,4})')


def content_type(head: bytes) -> str | None:
    """Return the content type of a file that begins with `head`; None for a format that the service does not decode."""
    return next((kind for kind, begins in _BEGINNINGS.items() if re.match(begins, head, re.DOTALL)), None)


class Frames:
    """Cuts raw PCM at frame boundaries, because each chunk must hold whole frames; passes other audio through.

    A socket or a pipe gives blocks of any length. A partial frame at the end of the audio is dropped.
    """

    def __init__(self, content_type: str, partial: int = 0) -> None:
        """Cut audio of this content type.

        The first `partial` bytes of a frame are there already, from a sender that is gone. Zeros complete it, so that
        the next frame begins where the service expects it.
        """
        bits = _SAMPLE.search(content_type)
        channels = _CHANNELS.search(content_type)
        self._length = (int(bits[1]) // 8 * (int(channels[1]) if channels else 1) if bits else 1) or 1
        self._rest = b""
        self._padding = bytes(-partial % self._length)

    def feed(self, block: bytes, longest: int) -> list[bytes]:
        """Return the whole frames of the data received and not yet returned, as chunks.

        A block of at most `longest` bytes never makes a longer chunk.
        """
        data = self._rest + block
        whole = len(data) - len(data) % self._length
        self._rest = data[whole:]
        # The frame that the last block began may be too much for the chunk of this one.
        first = self._length if len(block) <= longest < whole else 0
        padding = self._padding if whole else b""
        self._padding = self._padding[len(padding) :]
        return [chunk for chunk in (padding, data[:first], data[first:whole]) if chunk]


def content_type_of(file: BinaryIO) -> str | None:
    """Return the content type of an open file, and rewind it."""
    file.seek(0)
    kind = content_type(file.read(HEAD))
    file.seek(0)
    return kind


def name_of(file: BinaryIO) -> str:
    """Return the name of an open file without its folder; `audio` if it has no name."""
    return Path(str(getattr(file, "name", "audio"))).name


def session_options(file: BinaryIO, name: str, sensitivity: Sensitivity) -> SessionOptions:
    """Return the options of a session for an open file.

    Raises:
        UnknownFormat: the service does not decode this format.
        OSError: it cannot be read.
    """
    kind = content_type_of(file)
    if kind is None:
        raise UnknownFormat(f"not a {KINDS} file")
    size = file.seek(0, SEEK_END)
    file.seek(0)
    return SessionOptions("file", kind, sensitivity, size, name)
