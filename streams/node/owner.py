"""The state of one owned partition, from its assignment to its loss."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from streams.folding.awaited_verdicts import VerdictCall
from streams.folding.fold import Changes
from streams.folding.head_store import HeadStore
from streams.folding.presence import Presence
from streams.folding.references import References
from streams.jobs.job_store import JobStore
from streams.node.partition_consumer import PartitionConsumer
from streams.node.set_aside import SetAside
from streams.sessions.store import SessionStore
from streams.tables.partition_rows import PartitionRows
from topics.catalog import COMMANDS, JOB_COMMANDS, JOB_RESULTS
from topics.errors import Unavailable

#: A session or job counts as live for this long after it was last written.
LIVE_SECONDS: Final = 10.0


class PartitionOwner:
    """Holds an owned partition: its rows and stores, the consumers of its topics, and work deferred until it serves.

    `rows`, `presence`, `sessions` and `jobs` exist once `has_table` is true, `aside` once `restored` is. Loop only.
    """

    rows: PartitionRows
    presence: Presence
    aside: SetAside
    sessions: SessionStore
    jobs: JobStore

    def __init__(self, number: int, partitions: int = 16) -> None:
        self.number = number
        self._partitions = partitions
        self.has_table = False
        #: The table is up to date with the changelog, and the epoch is in the changelog.
        self.restored = False
        self.consumers: dict[str, PartitionConsumer] = {}
        self.serving = False
        self.paused = False
        #: The partition was lost; its background work ends.
        self.closed = False
        #: What the takeover waits for, as text for operators.
        self.waiting: str | None = "its table"
        #: The takeover waits for others, which read their changelogs first.
        self.queued = False
        #: Steps of a takeover that `waiting` and the positions do not show.
        self.steps = 0
        #: Why it does not serve until an operator decides.
        self.stopped: str | None = None
        #: Positions confirmed in the changelog; the log may be trimmed below them.
        self.durable: Mapping[str, int] = {}
        #: The positions logged last.
        self.noted: Mapping[str, int] | None = None
        #: Work to begin once it serves.
        self.early: dict[Any, Changes] = {}
        #: Unread ranges [start, stop) of the changelog that other owners wrote to. While there are any, the table's
        #: position must not be noted. Reading a range replaces the set.
        self.unread_gaps: set[tuple[int, int]] = set()
        #: Background tasks, cancelled by `close`.
        self.tasks: set[asyncio.Task[None]] = set()
        #: Held while consumers catch up.
        self.catching_up = asyncio.Lock()
        #: Verdicts that requests wait for.
        self.awaited: set[VerdictCall] = set()
        self._live: set[str] = set()
        self._live_before: set[str] = set()
        self._live_since = 0.0

    def take_rows(self, rows: PartitionRows) -> None:
        self.rows, self.has_table = rows, True
        self.presence = Presence(rows)
        self.sessions = SessionStore(rows, self._partitions, self.presence)
        self.jobs = JobStore(rows, self._partitions, self.presence)

    @property
    def is_coming(self) -> bool:
        return self.waiting is not None and self.stopped is None

    def progress(self) -> object:
        """Return a value that changes whenever the takeover makes progress."""
        applied = self.rows.applied.offset if self.has_table else 0
        return self.waiting, self.steps, applied, sum(consumer.position for consumer in self.consumers.values())

    def store(self, topic: str) -> HeadStore[Any]:
        return self.jobs if topic in (JOB_COMMANDS, JOB_RESULTS) else self.sessions

    def positions(self) -> dict[str, int]:
        return {topic: consumer.position for topic, consumer in self.consumers.items()}

    def floor(self, topic: str) -> int | None:
        if not self.serving:
            return None
        durable, references = self.durable.get(topic), self._references(topic)
        lowest = None if references is None else references.lowest()
        return durable if durable is None or lowest is None else min(durable, lowest)

    def needed(self, topic: str, start: int, stop: int, most: int | None) -> list[int]:
        if not self.serving:
            return []
        durable, references = self.durable.get(topic), self._references(topic)
        if durable is None or references is None:
            return []
        if most is not None and len(references) > most:
            return []
        stop = min(stop, durable)
        return [*references.within(start, stop), stop]

    def _references(self, topic: str) -> References | None:
        if topic == COMMANDS:
            return self.sessions.references
        return self.jobs.references if topic == JOB_COMMANDS else None

    def serve(self) -> None:
        """Start answering requests, unless stopped; everything on the log at the takeover is folded."""
        self.serving = self.stopped is None
        self.waiting = None
        self.rows.thaw()

    def pause(self) -> None:
        """Take no more commands: another node owns the partition. Those in flight still get their verdicts."""
        self.paused, self.serving, self.waiting = True, False, "the verdicts of its last commands"

    def beat(self, now_ms: int) -> None:
        """Note that the partition is served at a log time; raise Unavailable if its table takes no rows."""
        often = self.sessions.is_watching
        if often or self.jobs.is_watching:
            self.presence.beat(now_ms, often=often)

    def close(self, reason: str) -> None:
        """Fail waiting requests with `reason` and cancel background work: another node owns the partition."""
        self.closed, self.serving, self.waiting = True, False, None
        for task in list(self.tasks):
            task.cancel()
        for consumer in self.consumers.values():
            consumer.closed = True
        self.refuse(reason)

    def refuse(self, reason: str) -> None:
        """Fail waiting requests, whose commands may still be folded."""
        for call in list(self.awaited):
            call.answer(Unavailable(reason, uncertain=True))
        self.awaited.clear()

    def touch(self, id: str) -> None:
        self._live.add(id)

    def live(self) -> int:
        """Return roughly how many sessions and jobs are being written."""
        now = time.monotonic()
        if now - self._live_since > LIVE_SECONDS:
            self._live_since = now
            self._live_before, self._live = self._live, set()
        return max(len(self._live), len(self._live_before))


def waits(owners: Iterable[PartitionOwner]) -> str | None:
    """Return what takeovers wait for, None if none waits. Stopped partitions wait for an operator and do not count."""
    reasons: dict[str, list[int]] = {}
    for owner in owners:
        if owner.is_coming:
            reasons.setdefault(str(owner.waiting), []).append(owner.number)
    return "; ".join(f"partition {_numbers(some)}: {reason}" for reason, some in reasons.items()) or None


def _numbers(some: list[int]) -> str:
    return ", ".join(map(str, some[:8])) + (f" and {len(some) - 8} more" if len(some) > 8 else "")
