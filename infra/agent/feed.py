"""Sends the blocks of one source to its session, in order, over as many connections and sessions as necessary."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from infra.agent.capture import RATE
from infra.agent.flac import Block, Note
from infra.agent.sources import Source
from infra.agent.spool import Spool

if TYPE_CHECKING:
    from earshot_client import AsyncClient, AsyncSocket, SessionOptions

log: Final = structlog.stdlib.get_logger("infra.agent")

#: Pauses between tries grow from the first to the last, seconds.
FIRST_PAUSE: Final = 0.5
LAST_PAUSE: Final = 30.0
#: Blocks in flight.
WINDOW: Final = 16
#: Blocks after which a session works.
STABLE_BLOCKS: Final = 10
#: Seconds of audio that wait for analysis, beyond which what was on the disk waits, so that live sources do not.
MOST_BEHIND: Final = 10.0
#: Seconds until the acknowledgements are looked at again, and if some have just come.
LOOK: Final = 0.25
LOOK_SOON: Final = 0.02
#: The service takes a block to follow the one before it without a gap; it is told otherwise beyond this.
TOLERANCE_MS: Final = 5.0
LONGEST_REASON: Final = 200
#: A note that is older has waited, for the service or for the source: the service takes its time if it is told so.
LATE_SECONDS: Final = 60.0
#: Blocks that are sent again to the session of a new day: one window, so that no sound at the seam is lost.
SEAM: Final = 2


class Pauses:
    """The seconds before each next try, which grow until something works."""

    def __init__(self, first: float = FIRST_PAUSE, last: float = LAST_PAUSE) -> None:
        self._first, self._last = first, last
        self._next = first

    def next(self) -> float:
        """Return the next pause."""
        pause, self._next = self._next, min(2 * self._next, self._last)
        return pause

    def reset(self) -> None:
        """Note that something works."""
        self._next = self._first


class Feed:
    """The sending half of a source. Loop only."""

    def __init__(self, source: Source, client: AsyncClient, spool: Spool) -> None:
        self._source, self._client, self._spool = source, client, spool
        #: A session keeps what it was opened with, so other labels need another session.
        self._described = msgspec.json.encode([source.labels, source.sensitivity, source.model]).decode()
        self._pauses = Pauses()
        self._said = ""
        self._warning: str | None = None
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

        while True:
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
            except Exception:
                log.exception("sending failed", source=self._source.name)
            await asyncio.sleep(self._pauses.next())

    def _say(self, reason: str) -> None:
        """Log why nothing is sent, each reason once."""
        if reason != self._said:
            self._said = reason
            log.error("service takes no audio", source=self._source.name, reason=reason)

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
        spool, first = self._spool, None
        if spool.state.session and spool.state.options != self._described:
            spool.leave()
        # A session begins with its first block or, if the source cannot be heard, with the note of that.
        while (first := await spool.next() or spool.due) is None and not spool.state.session:
            spool.changed.clear()
            await spool.changed.wait()
        session = spool.state.session or self._options()
        async with self._client.socket(session, events=(), patience=float("inf")) as socket:
            spool.joined(socket.session_id, socket.next_chunk, spool.state.day or _day(first), self._described)
            if self._said:
                self._said = ""
                log.info("service takes audio", source=self._source.name)
            if day := await self._send(socket):
                await socket.end()
            else:  # Otherwise it would wait for acknowledgements.
                await socket.close()
        if day:
            spool.acknowledged(socket.next_chunk)
            spool.leave(day)
            spool.put_back(list(self._seam))
            self._seam.clear()

    async def _send(self, socket: AsyncSocket) -> str:
        """Send until the next block is of another day, and return that, or "" when another socket is needed."""
        spool, times, sent_at = self._spool, _Times(socket), 0.0
        began = spool.first
        while not spool.broken:
            before = spool.first
            spool.changed.clear()
            spool.acknowledged(socket.next_chunk)
            if spool.first - began >= STABLE_BLOCKS:
                self._pauses.reset()
            full = spool.sent - spool.first >= WINDOW
            block = None if full else await spool.next()
            if block is not None and block.late and socket.behind > MOST_BEHIND:
                # Each block that is acknowledged tells how far behind it is.
                full = time.monotonic() - sent_at < 1.0
            if block is not None and not full:
                if (day := _day(block)) > spool.state.day:
                    return day
                spool.advance()  # It may arrive, however this ends.
                await times.send(block)
                self._seam.append(block)
                sent_at = time.monotonic()
                continue
            if (note := spool.due) is not None:
                await times.tell(note)
                spool.noted(note)
            if socket.warning not in (None, self._warning):
                self._warning = socket.warning
                log.warning("service left something out", source=self._source.name, reason=self._warning)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SOON if spool.first > before else LOOK):
                    await spool.changed.wait()
        return ""


class _Times:
    """Tells a socket when blocks were captured, if that does not follow from what it was told."""

    def __init__(self, socket: AsyncSocket) -> None:
        self._socket = socket
        self._expected = float("-inf")

    async def send(self, block: Block) -> None:
        """Send what happened to the source, and then the block."""
        for note in block.notes:
            await self.tell(note, block.late)
        told = abs(block.at_ms - self._expected) > TOLERANCE_MS
        self._expected = (block.at_ms if told else self._expected) + len(block.data) / 2 / RATE * 1000
        await self._socket.send(block.data, _time(block.at_ms) if told else None, block.late)

    async def tell(self, note: Note, spooled: bool = False) -> None:
        """Send what happened to the source."""
        spooled = spooled or time.time() - note.at_ms / 1000 > LATE_SECONDS
        await self._socket.source(note.event, note.reason[:LONGEST_REASON] or None, _time(note.at_ms), spooled)


def _time(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)


def _day(first: Block | Note | None) -> str:
    """Return the local day of a block or note, "" of none."""
    return time.strftime("%Y-%m-%d", time.localtime(first.at_ms / 1000)) if first else ""
