"""Request bodies too long for memory: received in blocks and kept in an unnamed file."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from hashlib import blake2b
from types import TracebackType
from typing import Final

import msgspec

from app.http.bodies import check_encoding, check_length, too_long
from app.http.call import Call
from app.http.errors import ClientGone, RequestTimeout
from app.http.upload_bounds import UploadQuota
from topics.turns import Holder

#: Bytes passed to a worker thread at a time.
BLOCK_BYTES: Final = 512 * 1024
#: Seconds for which an upload may hold its place; 4 GiB take as long at 600 kB/s.
LONGEST_SECONDS: Final = 2 * 3600.0


class UploadSpool:
    """An unnamed file that is written once from start to end. Any thread.

    It vanishes when it is closed, and with the process. Its methods raise OSError if the disk is full or fails.
    """

    def __init__(self, room: UploadQuota, holder: Holder, hashed: bool = False) -> None:
        """Create the file. With `hashed`, `digest` returns a hash of its content; hashing takes longer than writing."""
        self._room = room
        self.holder = holder
        # Closing waits for the working thread, because the number of a closed descriptor soon names another file.
        self._lock = threading.Lock()
        self._file = tempfile.TemporaryFile(buffering=0, dir=room.directory)  # noqa: SIM115
        self._hash = blake2b(digest_size=32) if hashed else None
        self.size = 0

    def beside(self) -> UploadSpool:
        return UploadSpool(self._room, self.holder)

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes.

        Raises:
            Unavailable: there is no room for them.
        """
        with self._lock:
            if self._file.closed:
                raise ValueError("the spool is closed")
            self._room.add(self.holder, len(data))
            self.size += len(data)
            view = memoryview(data)
            while view:
                view = view[self._file.write(view) or 0 :]
            if self._hash is not None:
                self._hash.update(data)

    def read(self, offset: int, length: int) -> bytes:
        """Return `length` bytes at an offset, fewer at the end."""
        with self._lock:
            return os.pread(self._file.fileno(), length, offset)

    def fileno(self) -> int:
        return self._file.fileno()

    def digest(self) -> bytes:
        """Return the BLAKE2b-256 of the content of a hashed spool."""
        assert self._hash is not None
        return self._hash.digest()

    async def __aenter__(self) -> UploadSpool:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The system takes a while to free gigabytes.
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        with self._lock:
            self._file.close()
        self._room.release(self.holder, self.size)


class Uploads(msgspec.Struct, frozen=True):
    """How a deployment receives bodies too long for memory."""

    room: UploadQuota
    #: An upload that sends nothing for this long is aborted.
    idle_seconds: float
    #: After that time, an upload slower than this is aborted (bytes per second).
    slowest: int

    @asynccontextmanager
    async def spool(self, holder: Holder, hashed: bool = False) -> AsyncIterator[UploadSpool]:
        """Reserve a place for an upload, and yield a new, empty file.

        Raises:
            Unavailable: no place is left.
        """
        with self.room.places.place(holder):
            async with UploadSpool(self.room, holder, hashed) as spool:
                yield spool

    async def receive(self, call: Call, limit: int, take: Callable[[bytes], None]) -> None:
        """Pass the request's body to `take` block by block in a worker thread; errors of `take` pass through.

        Raises:
            TooLarge, RequestTimeout, ClientGone: the body cannot be read (`pieces`).
        """
        async with aclosing(self.pieces(call, limit)) as pieces:
            block: list[bytes] = []
            size = 0
            async for piece in pieces:
                block.append(piece)
                size += len(piece)
                if size >= BLOCK_BYTES:
                    await asyncio.to_thread(take, b"".join(block))
                    block, size = [], 0
            await asyncio.to_thread(take, b"".join(block))

    async def pieces(self, call: Call, limit: int) -> AsyncGenerator[bytes, None]:
        """Yield the request's body as it arrives.

        Raises:
            UnsupportedEncoding: it is compressed.
            TooLarge: longer than `limit` bytes, by its Content-Length or as it arrives.
            RequestTimeout: nothing came for the idle time, too little for long, or something for `LONGEST_SECONDS`.
            ClientGone: the client hung up before the end.
        """
        check_encoding(call.header(b"content-encoding"))
        check_length(call.header(b"content-length"), limit)
        idle, clock = self.idle_seconds, asyncio.get_running_loop().time
        began, size, more = clock(), 0, True
        while more:
            left = began + min(idle + size / self.slowest, LONGEST_SECONDS) - clock()
            piece, more = await _piece(call, min(idle, left))
            size += len(piece)
            if size > limit:
                raise too_long(limit)
            yield piece


async def _piece(call: Call, seconds: float) -> tuple[bytes, bool]:
    """Return the next part of the body, and whether more will come."""
    try:
        async with asyncio.timeout(seconds):
            message = await call.receive()
    except TimeoutError:
        raise RequestTimeout("the request did not arrive in time") from None
    if message["type"] == "http.disconnect":
        raise ClientGone
    return message.get("body", b""), message.get("more_body", False)
