"""Windows of the stack: rows of RocksDB that follow the result topic, and readers that wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from rocksdict import Options, Rdict, WriteBatch, WriteOptions

from benchmarks.stack.records import NUMBER_BYTES, decode


class Stream:
    """What the ingress knows of a session."""

    __slots__ = ("chunks", "key", "partition", "waiting", "windows")

    def __init__(self, key: bytes, partition: int) -> None:
        self.key = key
        self.partition = partition
        self.chunks = 0
        self.windows = 0
        self.waiting: list[asyncio.Future[None]] = []


class WindowTable:
    """Windows by session and number, and sessions by id."""

    def __init__(self, directory: Path) -> None:
        self.streams: dict[bytes, Stream] = {}
        self._rows = Rdict(str(directory), Options(raw_mode=True))
        # What is lost with the process is read again from the topic. The stubs take the property for a method.
        self._unlogged = WriteOptions()
        self._unlogged.disable_wal = True  # type: ignore[method-assign,assignment]

    def put(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        """Keep windows, (session, value of a result record) in the order of the topic; wake who waits for them."""
        batch = WriteBatch(raw_mode=True)
        arrived = []
        for session, value in records:
            first, events = decode(value)
            for number, event in enumerate(events, first):
                batch.put(session + number.to_bytes(NUMBER_BYTES, "big"), event)
            arrived.append((session, first + len(events)))
        self._rows.write(batch, self._unlogged)
        for session, windows in arrived:
            if (stream := self.streams.get(session)) is not None:
                _advance(stream, windows)

    def events(self, stream: Stream, first: int, end: int) -> bytes:
        """Return the events of windows [first, end), which must exist, with commas between."""
        keys: list[Any] = [stream.key + number.to_bytes(NUMBER_BYTES, "big") for number in range(first, end)]
        return b",".join(cast(list[bytes], self._rows[keys]))

    def close(self) -> None:
        """Close the table."""
        self._rows.close()


def _advance(stream: Stream, windows: int) -> None:
    stream.windows = max(stream.windows, windows)
    for waiting in stream.waiting:
        if not waiting.done():
            waiting.set_result(None)
    stream.waiting.clear()


async def wait_for_window(stream: Stream, number: int, seconds: float) -> None:
    """Return once the window is there, or when the seconds are over."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while stream.windows <= number:
                waiting = asyncio.get_running_loop().create_future()
                stream.waiting.append(waiting)
                await waiting
