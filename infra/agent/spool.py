"""What was captured and is not acknowledged: in memory while all is well, then in files of FLAC, the oldest first.

A block has an ordinal, which counts the blocks of its source. The service counts the chunks of a session: the chunk of
a block is its ordinal minus the `base` of the session. With the session and its base in a file, a next agent knows from
the number of the next chunk which blocks the service has.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec
import structlog

from infra.agent import flac
from infra.agent.capture import BLOCK_SECONDS
from infra.agent.flac import Block, Note
from infra.disk import replace_file

log: Final = structlog.stdlib.get_logger("infra.agent")

#: Blocks of a file.
SEGMENT: Final = 10
#: Blocks that wait in memory before the first file, and once there are files.
MEMORY: Final = 20
#: Blocks beyond which the oldest are dropped if the disk takes none.
MOST_MEMORY: Final = 240
STATE: Final = "state.json"


class State(msgspec.Struct, frozen=True):
    """What the next agent must know: the session, its local day and options, and its base if that is known.

    Attributes:
        base: the ordinal of the block that is chunk 0, also of a session that is still to be opened.
    """

    session: str = ""
    base: int | None = None
    day: str = ""
    options: str = ""


class _Segment(msgspec.Struct):
    """Consecutive blocks, either in memory or in a file."""

    first: int
    count: int
    at_ms: int
    size: int = 0
    path: Path | None = None
    blocks: list[Block] | None = None

    @property
    def end(self) -> int:
        return self.first + self.count


_decode: Final = msgspec.json.Decoder(State).decode


class Spool:
    """The blocks of one source, in order. Loop only.

    `first` is the oldest block that is not acknowledged, `sent` the next one to send, and `end` the next one to come.
    """

    def __init__(self, directory: Path, name: str) -> None:
        """Make the directory, and find what an earlier agent left there."""
        self._directory, self._name = directory, name
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._segments: deque[_Segment] = deque(sorted(self._found(), key=lambda one: one.first))
        self.state = State()
        with suppress(OSError, msgspec.MsgspecError):
            self.state = _decode((directory / STATE).read_bytes())
        self._fresh: deque[Block] = deque()
        self._full = self._unsaved = False
        if not self._segments or any(one.end != other.first for one, other in pairwise(self._segments)):
            # The ordinals begin anew: the next agent must not take them for the old ones if this one never connects.
            self._save(msgspec.structs.replace(self.state, base=None))
            self._close_gaps()
        #: Oldest that is not acknowledged; next to send; next to come.
        self.first = self.sent = self._segments[0].first if self._segments else 0
        self.end = self._segments[-1].end if self._segments else 0
        #: An earlier agent may have sent all that it left.
        self._may_be_stored = self.end
        #: Blocks that a socket holds were dropped, so it must be opened again.
        self.broken = False
        self._writing = asyncio.Lock()
        self._notes: list[Note] = []
        self.changed = asyncio.Event()
        self._dropped = asyncio.Event()
        if not self.state.session and self.state.base is not None:
            self._drop_below(min(self.state.base, self.end))

    def _found(self) -> Iterator[_Segment]:
        for path in self._directory.glob("*.new"):
            path.unlink()
        for path in self._directory.glob("*.flac"):
            with suppress(ValueError):  # It is not ours.
                first, count, at_ms = map(int, path.stem.split("-"))
                yield _Segment(first, count, at_ms, path.stat().st_size, path)

    def _close_gaps(self) -> None:
        """Renumber the files after those that are missing."""
        for before, segment in pairwise(self._segments):
            if segment.first != before.end and segment.path is not None:
                segment.first = before.end
                segment.path = segment.path.rename(self._path(before.end, segment.count, segment.at_ms))

    def _path(self, first: int, count: int, at_ms: int) -> Path:
        return self._directory / f"{first:012d}-{count}-{at_ms}.flac"

    # --- in -------------------------------------------------------------------------------------------------------

    def push(self, at_ms: int, data: bytes) -> None:
        """Take the next block."""
        self._fresh.append(Block(at_ms, data, tuple(self._notes)))
        self._notes.clear()
        self.end += 1
        self.changed.set()

    def note(self, note: Note) -> None:
        """Take a note, which comes after all blocks so far."""
        self._notes.append(note)
        self.changed.set()

    def put_back(self, blocks: list[Block]) -> None:
        """Send blocks again before all others."""
        if blocks:
            self.first -= len(blocks)
            self.sent = self.first
            self._segments.appendleft(_Segment(self.first, len(blocks), blocks[0].at_ms, blocks=blocks))

    # --- out ------------------------------------------------------------------------------------------------------

    @property
    def late(self) -> bool:
        """True while blocks are on the disk."""
        return bool(self._segments)

    @property
    def seconds(self) -> float:
        """The audio that is not acknowledged."""
        return (self.end - self.first) * BLOCK_SECONDS

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        return sum(segment.size for segment in self._segments)

    async def next(self) -> Block | None:
        """Return the next block to send, or None; `advance` counts it as sent."""
        fresh = self.end - len(self._fresh)
        if self.sent >= fresh:
            return self._fresh[self.sent - fresh] if self.sent < self.end else None
        segment = next((one for one in self._segments if one.end > self.sent), None)
        if segment is None:
            return None
        if segment.blocks is None:
            assert segment.path is not None
            segment.blocks = await self._read(segment)
        return segment.blocks[self.sent - segment.first]

    async def _read(self, segment: _Segment) -> list[Block]:
        assert segment.path is not None
        try:
            blocks = await asyncio.to_thread(flac.read, segment.path)
            if len(blocks) == segment.count:
                return blocks
            raise ValueError("it is damaged")
        except (OSError, ValueError) as error:
            self._lost(segment.at_ms, segment.count, str(getattr(error, "strerror", error)))
        # A sample for each block, so that those behind it keep their numbers.
        return [Block(segment.at_ms, bytes(2), late=True)] * segment.count

    def _lost(self, at_ms: int, blocks: int, reason: str) -> None:
        captured = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
        seconds = blocks * BLOCK_SECONDS
        log.error("audio lost", source=self._name, seconds=seconds, captured=captured, reason=reason)

    def advance(self) -> None:
        """Count the next block as sent."""
        self.sent += 1

    @property
    def due(self) -> Note | None:
        """The oldest note after all blocks, once these are sent; `noted` drops it."""
        return self._notes[0] if self._notes and self.sent == self.end else None

    def noted(self, note: Note) -> None:
        """Drop a note that was sent."""
        if note in self._notes:
            self._notes.remove(note)

    def joined(self, session: str, next_chunk: int, day: str, options: str = "") -> None:
        """Begin to send to a session that has so many chunks; blocks that it has are dropped."""
        base = self.state.base
        if session == self.state.session and base is not None:
            stored = max(self._may_be_stored, self.sent)
            self._drop_below(min(next_chunk + base, stored, self.end))
        self._may_be_stored = self.first
        self.sent, self.broken = self.first, False
        self._save(State(session, self.first - next_chunk, day, options))

    def acknowledged(self, next_chunk: int) -> None:
        """Drop the blocks that the service has."""
        if self.state.base is not None and not self.broken:
            self._drop_below(min(next_chunk + self.state.base, self.sent))

    def leave(self, day: str = "") -> None:
        """Forget the session, which takes no more chunks; the next one is of this day, or of its first block's."""
        self.sent, self._may_be_stored = self.first, self.first
        self._save(State(base=self.first, day=day))

    def _drop_below(self, ordinal: int) -> None:
        while self._segments and self._segments[0].end <= ordinal:
            _remove(self._segments.popleft())
        fresh = self.end - len(self._fresh)
        for _ in range(min(ordinal - fresh, len(self._fresh))):
            self._fresh.popleft()
        self._dropped.set()
        self.first = max(self.first, ordinal)
        self.sent = max(self.sent, self.first)

    def _save(self, state: State) -> None:
        if state != self.state or self._unsaved:
            self.state = state
            try:
                replace_file(self._directory / STATE, msgspec.json.encode(state))
                self._unsaved = False
            except OSError as error:
                if not self._unsaved:
                    log.error("state not saved", source=self._name, reason=error.strerror)
                self._unsaved = True

    async def drained(self) -> None:
        """Wait until every block is acknowledged; return at once if there are some on the disk."""
        while self.first < self.end and not self.late:
            self._dropped.clear()
            await self._dropped.wait()

    # --- disk -----------------------------------------------------------------------------------------------------

    async def settle(self, every: bool = False) -> None:
        """Write to the disk what has waited too long in memory, or everything."""
        async with self._writing:
            self._save(self.state)  # The disk may have been full.
            while self._fresh and (every or len(self._fresh) >= (SEGMENT if self._segments else MEMORY)):
                first = self.end - len(self._fresh)
                blocks = [self._fresh[index] for index in range(min(SEGMENT, len(self._fresh)))]
                path = self._path(first, len(blocks), blocks[0].at_ms)
                try:
                    self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)  # Somebody may have removed it.
                    size = await asyncio.to_thread(flac.write, path, blocks)
                except OSError as error:
                    self._not_written(error)
                    return
                self._full = False
                segment = _Segment(first, len(blocks), blocks[0].at_ms, size, path)
                while self._fresh and self.end - len(self._fresh) < segment.end:
                    self._fresh.popleft()
                if segment.end > self.first:
                    self._segments.append(segment)
                else:  # It was acknowledged meanwhile.
                    _remove(segment)

    def _not_written(self, error: OSError) -> None:
        if not self._full:
            log.error("spool not written", source=self._name, reason=error.strerror)
        self._full = True
        if len(self._fresh) > MOST_MEMORY:
            self.drop_oldest()

    @property
    def oldest(self) -> int | None:
        """The capture time (ms) of the oldest file."""
        return next((segment.at_ms for segment in self._segments if segment.path), None)

    def drop_oldest(self) -> None:
        """Lose the oldest blocks, because there is no room."""
        end = self._segments[0].end if self._segments else self.first + SEGMENT
        at_ms = self._segments[0].at_ms if self._segments else self._fresh[0].at_ms
        self._lost(at_ms, end - self.first, "the spool is full")
        # Whether the service has some of them, and what follows, is only known when it is asked again.
        self.broken = True
        self._drop_below(end)
        self.changed.set()


def _remove(segment: _Segment) -> None:
    if segment.path is not None:
        segment.path.unlink(missing_ok=True)


async def settle(spools: Sequence[Spool], most_bytes: int) -> None:
    """Write what has waited too long, and drop the oldest files of all spools beyond their common bound."""
    await asyncio.gather(*(spool.settle() for spool in spools))
    while sum(spool.size for spool in spools) > most_bytes:
        kept = [spool for spool in spools if spool.oldest is not None]
        min(kept, key=lambda spool: spool.oldest or 0).drop_oldest()
