"""One stream of a project's sessions, merged from the nodes that own them.

The node that gets the request reads its own sessions and forwards the request to each of the others. These name the
partitions that they cover, so that the reader learns what is missing.
"""

import asyncio
from collections.abc import AsyncGenerator, Set
from contextlib import aclosing, suppress
from typing import Final

import msgspec

from app.http.call import Call
from app.http.replies import StreamReply
from app.http.server_sent import HEARTBEAT, json_event, named_event
from app.sessions.answers import LiveMissing
from app.sessions.session_context import SessionContext
from topics.errors import Unavailable

#: Seconds between checks of the set of nodes, and before a node that did not answer is asked again.
POLL_SECONDS: Final = 2.0
#: Longest event of a node, in bytes: 64 windows with their levels and spectrograms.
LONGEST_PIECE: Final = 1024 * 1024

_PART: Final = b"event: part\n"


class _Part(msgspec.Struct, frozen=True):
    partitions: frozenset[int]


_part: Final = msgspec.json.Decoder(_Part)


def part_event(partitions: Set[int]) -> bytes:
    """Name the partitions of this node's events, for another node."""
    return json_event("part", {"partitions": sorted(partitions)})


async def joined(call: Call, context: SessionContext, own: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield the events of this node and all others, each whole, as they arrive; end with this node's events."""
    # A slow reader makes all of them wait.
    pieces: asyncio.Queue[bytes | None] = asyncio.Queue(1)
    others = _Others(call, context, pieces)
    tasks = [asyncio.create_task(_pump(own, pieces)), asyncio.create_task(others.keep())]
    try:
        while (piece := await pieces.get()) is not None:
            yield piece
        await tasks[0]  # A failure there ends this stream too.
    finally:
        for task in (*tasks, *others.tasks.values()):
            task.cancel()
        await asyncio.gather(*tasks, *others.tasks.values(), return_exceptions=True)


async def _pump(own: AsyncGenerator[bytes, None], pieces: asyncio.Queue[bytes | None]) -> None:
    try:
        async with aclosing(own):
            async for piece in own:
                await pieces.put(piece)
    finally:
        if not asyncio.current_task().cancelling():  # type: ignore[union-attr]
            await pieces.put(None)


class _Others:
    """The streams of other nodes."""

    def __init__(self, call: Call, context: SessionContext, pieces: asyncio.Queue[bytes | None]) -> None:
        self._call = call
        self._context = context
        self._pieces = pieces
        self.tasks: dict[str, asyncio.Task[None]] = {}
        #: Partitions that each node covers now.
        self._parts: dict[str, Set[int]] = {}

    async def keep(self) -> None:
        """Listen to all current nodes, and report what is missing."""
        said = 0
        while True:
            urls = self._context.sessions.coverage().elsewhere
            for url in self.tasks.keys() - urls:
                self.tasks.pop(url).cancel()
            for url in urls - self.tasks.keys():
                self.tasks[url] = asyncio.create_task(self._listen(url))
            await asyncio.sleep(POLL_SECONDS)
            coverage = self._context.sessions.coverage()
            missing = coverage.partitions - len(coverage.here.union(*self._parts.values()))
            if missing != said:
                said = missing
                await self._pieces.put(named_event(LiveMissing(missing, coverage.partitions)))

    async def _listen(self, url: str) -> None:
        while True:
            with suppress(Unavailable, msgspec.MsgspecError):
                reply = await self._context.list.forwarder.forward(self._call.scope, url, b"")
                if isinstance(reply, StreamReply):
                    try:
                        async with aclosing(reply.pieces) as pieces:
                            if reply.status == 200:
                                await self._relay(url, pieces)
                    finally:
                        self._parts.pop(url, None)
            await asyncio.sleep(POLL_SECONDS)

    async def _relay(self, url: str, pieces: AsyncGenerator[bytes, None]) -> None:
        rest = b""
        async for piece in pieces:
            whole, found, rest = (rest + piece).rpartition(b"\n\n")
            if len(rest) > LONGEST_PIECE:
                return
            blocks = [block + found for block in whole.split(found)] if found else []
            for block in blocks:
                if block.startswith(_PART):
                    self._parts[url] = _part.decode(block.partition(b"data: ")[2]).partitions
            passed = b"".join(block for block in blocks if block != HEARTBEAT and not block.startswith(_PART))
            if passed:
                await self._pieces.put(passed)
