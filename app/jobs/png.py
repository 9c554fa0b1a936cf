"""Greyscale pictures as PNG (ISO/IEC 15948)."""

import struct
import zlib
from typing import Final

_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
#: 8 bits of grey, and the only defined methods of compression, filtering and interlacing.
_KIND: Final = bytes((8, 0, 0, 0, 0))
#: Higher levels are not worth their time: noise compresses badly.
_LEVEL: Final = 3


def png(rows: bytes, width: int) -> bytes:
    """Return a picture of rows of `width` bytes, from black to white, top row first."""
    height = len(rows) // width
    # Each row starts with its filter, none.
    lines = b"".join(b"\0" + rows[at : at + width] for at in range(0, len(rows), width))
    head = struct.pack(">II", width, height) + _KIND
    chunks = (b"IHDR", head), (b"IDAT", zlib.compress(lines, _LEVEL)), (b"IEND", b"")
    return _SIGNATURE + b"".join(_chunk(name, data) for name, data in chunks)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(data, zlib.crc32(name)))
