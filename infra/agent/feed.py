"""Sends the blocks of one source to its session, in order, over as many connections and sessions as necessary."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import structlog

from infra.agent.capture import RATE
from infra.agent.flac import Block, Note
from infra.agent.sources import Source
from infra.agent.spool import Spool

if TYPE_CHECKING:
    from earshot_client import AsyncClient, AsyncSocket, SessionOptions

log: Final = structlog.stdlib.get_logger("infra.agent")

#: Pauses between tries grow from the first to the last, seconds; what worked for this long begins anew.
FIRST_PAUSE: Final = 0.5
LAST_PAUSE: Final = 30.0
STABLE_SECONDS: Final = 60.0
#: Blocks in flight.
WINDOW: Final = 32
#: Seconds of audio that wait for analysis, beyond which what was on the disk waits, so that live sources do not.
MOST_BEHIND: Final = 30.0
#: Seconds until what waits is looked at again: after nothing changed, and while the window is full.
LOOK: Final = 0.25
LOOK_SOON: Final = 0.02
#: Blocks that are sent again to the session of a new day: one window, so that no sound at the seam is lost.
SEAM: Final = 2


def pauses(first: float = FIRST_PAUSE, last: float = LAST_PAUSE) -> Iterator[float]:
    """Yield the seconds before each next try, without end; they begin anew after a try that lasted."""
    pause = first
    while True:
        began = time.monotonic()
        yield pause
        pause = first if time.monotonic() - began > pause + STABLE_SECONDS else min(2 * pause, last)


class Feed:
    """The sending half of a source. Loop only."""

    def __init__(self, source: Source, client: AsyncClient, spool: Spool) -> None:
        self._source, self._client, self._spool = source, client, spool
        self._said = ""
        self._seam: deque[Block] = deque(maxlen=SEAM)

    async def run(self) -> None:
        """Send until cancelled."""
        from earshot_client import (
            EarshotClientError,
            SessionClosed,
            SessionFailed,
            SessionNotFound,
            WrongKey,
            WrongSequence,
        )

        waits = pauses()
        while True:
            pause = next(waits)
            try:
                await self._converse()
                continue
            except (SessionNotFound, SessionClosed, SessionFailed, WrongSequence) as error:
                log.warning("session over", source=self._source.name, reason=str(error))
                self._spool.leave()
            except WrongKey as error:
                self._say(f"the service does not know the project key ({error})")
            except EarshotClientError as error:
                self._say(str(error))
            await asyncio.sleep(pause)

    def _say(self, reason: str) -> None:
        """Log why nothing is sent, each reason once."""
        if reason != self._said:
            self._said = reason
            log.error("service refuses" if reason else "service takes audio", source=self._source.name, reason=reason)

    def _options(self) -> SessionOptions:
        from earshot_client import Sensitivity, SessionOptions

        source = self._source
        kind = f"audio/x-raw; rate={RATE}; format=s16le"
        sensitivity = Sensitivity(source.sensitivity or 0)
        return SessionOptions(
            "stream", kind, sensitivity, file_name=source.name, metadata=source.labels, model=source.model
        )

    async def _converse(self) -> None:
        """Send over one socket until the day ends, or the spool needs another socket."""
        spool = self._spool
        # A session begins with its first block: its day is that of the block.
        while (first := await spool.next()) is None:
            spool.changed.clear()
            await spool.changed.wait()
        session = spool.state.session or self._options()
        async with self._client.socket(session, events=(), patience=float("inf")) as socket:
            spool.joined(socket.session_id, socket.next_chunk, spool.state.day or _day(first))
            if self._said:
                self._said = ""
                log.info("service takes audio", source=self._source.name)
            if day := await self._send(socket):
                await socket.end()
                while spool.first < spool.sent and not spool.broken:
                    await asyncio.sleep(LOOK_SOON)
                    spool.acknowledged(socket.next_chunk)
                spool.leave(day)
                spool.put_back(list(self._seam))
                self._seam.clear()

    async def _send(self, socket: AsyncSocket) -> str:
        """Send until the next block is of another day, and return that, or "" when another socket is needed."""
        spool, sent_at = self._spool, 0.0
        while not spool.broken:
            spool.changed.clear()
            spool.acknowledged(socket.next_chunk)
            full = spool.sent - spool.first >= WINDOW
            block = None if full else await spool.next()
            if block is not None and block.late and socket.behind > MOST_BEHIND:
                # Each block that is acknowledged tells how far behind it is.
                full = time.monotonic() - sent_at < 1.0
            if block is not None and not full:
                if (day := _day(block)) > spool.state.day:
                    return day
                for note in block.notes:
                    await send_note(socket, note)
                await send_block(socket, block)
                spool.advance()
                self._seam.append(block)
                sent_at = time.monotonic()
                continue
            for note in spool.take_notes():
                await send_note(socket, note)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SOON if full else LOOK):
                    await spool.changed.wait()
        return ""


async def send_block(socket: AsyncSocket, block: Block) -> None:
    """Send a block with its capture time."""
    await socket.send(block.data)


async def send_note(socket: AsyncSocket, note: Note) -> None:
    """Send what happened to the source."""


def _day(block: Block) -> str:
    """Return the local day of a block."""
    return time.strftime("%Y-%m-%d", time.localtime(block.at_ms / 1000))
