"""A transport that joins two writes into one."""

import asyncio
from collections.abc import Callable

from infra.transport.unread import Unread


def at_once() -> bool:
    """Return that closing waits for nothing."""
    return False


class PairingTransport(asyncio.Transport):
    """Joins two consecutive writes; the first waits for the second until the loop has nothing else to do.

    Writes to a client that has left are dropped, because uvloop's transport would raise.
    """

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, leave: Callable[[], bool] = at_once
    ) -> None:
        """Write to `transport`."""
        super().__init__()
        self._transport = transport
        self._loop = loop
        #: Returns whether closing has to wait for the rest of the request.
        self.leave = leave
        self.unread = Unread()
        self._first: bytes | bytearray | memoryview = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write, now or soon, in the order of the calls."""
        self.unread.written += len(data)
        if self._first:
            first, self._first = self._first, b""
            if not self._transport.is_closing():
                # From Python 3.12 on, an empty part would stay in the buffer of asyncio's own transport.
                self._transport.writelines((first, data) if data else (first,))
        else:
            self._first = data
            self._loop.call_soon(self._write_first)

    def _write_first(self) -> None:
        first, self._first = self._first, b""
        if first and not self._transport.is_closing():
            self._transport.write(first)

    def close(self) -> None:
        """Close once everything is written, and what must be read has arrived."""
        self._write_first()
        if not self.leave():
            self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()
