"""Tells whether a client reads what it is sent, and drops what it does not read."""

import asyncio
import socket
import struct
from contextlib import suppress
from fcntl import ioctl
from termios import TIOCOUTQ
from typing import Final

#: Send nothing more, and close at once.
_NO_LINGER: Final = struct.pack("ii", 1, 0)


def cut(transport: asyncio.Transport) -> None:
    """Close a connection at once. The kernel drops what the client has not taken; it would keep it for minutes."""
    if (connection := transport.get_extra_info("socket")) is not None:
        with suppress(OSError):  # The client has closed it.
            left = ioctl(connection.fileno(), TIOCOUTQ, bytes(4))
            if transport.get_write_buffer_size() or any(left):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    transport.abort()


class Unread:
    """Watches the output of one connection, from check to check. Loop only."""

    __slots__ = ("left", "written")

    def __init__(self) -> None:
        #: Unread bytes at the last check, and bytes written since then.
        self.left = self.written = 0

    def is_read(self, left: int) -> bool:
        """Return whether the client has read anything since the last check, or all; `left` bytes are unread now.

        A slow reader reads, even while more is written than it takes.
        """
        before, self.left, self.written = self.left + self.written, left, 0
        return not left or left < before
