"""The brokers: topics with offsets, epochs, retention and compaction, and the nodes' links to them."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextvars import Context
from typing import Any, Final, NamedTuple

from tests.simulation.loop import SimulatedLoop
from topics.catalog import CHANGELOG, TopicPartition

#: Latency of a message in seconds, mostly short.
QUICK_SECONDS: Final = (0.0003, 0.004)
SLOW_SECONDS: Final = (0.02, 0.25)
SLOW_SHARE: Final = 0.05


class Stored(NamedTuple):
    """A record on the log."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]


class Topic:
    """One partition of a topic."""

    def __init__(self) -> None:
        self.records: list[Stored] = []
        self.begin = self.end = 0
        #: When a compaction first saw its tombstones, by offset.
        self.tombstones: dict[int, int] = {}

    def since(self, offset: int) -> int:
        """Return the index of the first record at or above an offset."""
        records = self.records
        # Nearly always without gaps.
        if (
            records
            and (at := offset - records[0].offset) <= len(records)
            and len(records) == self.end - records[0].offset
        ):
            return max(0, at)
        return bisect_left(records, offset, key=lambda record: record.offset)

    def compact(self, now_ms: int, lag_ms: int, keep_tombstones_ms: int) -> None:
        """Keep the newest record of each key among those old enough, and tombstones for a while."""
        last = {record.key: record.offset for record in self.records if record.timestamp <= now_ms - lag_ms}
        kept = []
        for record in self.records:
            if record.timestamp <= now_ms - lag_ms:
                if last[record.key] != record.offset:
                    continue
                if record.value is None:
                    seen = self.tombstones.setdefault(record.offset, record.timestamp)
                    if now_ms - seen > keep_tombstones_ms:
                        continue
            kept.append(record)
        self.records = kept


class Link:
    """A node's link to the brokers; messages sent while it is cut arrive later."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.cut = False
        #: Maximum seconds added to each message, except those of the group.
        self.slow = 0.0
        self._waiting: list[tuple[Callable[[], None], Context | None]] = []

    def send(self, deliver: Callable[[], None], context: Context | None = None, delay: float | None = None) -> None:
        """Call `deliver` on arrival, in the context of its process; `delay` replaces `slow`."""
        if self.cut or self._cluster.away:
            self._waiting.append((deliver, context))
            self._cluster.links[self] = None
            return
        cluster = self._cluster
        chance = cluster.chance
        seconds = chance.uniform(*(SLOW_SECONDS if chance.random() < SLOW_SHARE else QUICK_SECONDS))
        seconds += self.slow * chance.random() if delay is None else delay
        cluster.loop.call_at(cluster.loop.now + seconds, deliver, context=context or cluster.context)

    def restore(self) -> None:
        """Deliver waiting messages."""
        self.cut = False
        if not self._cluster.away:
            waiting, self._waiting = self._waiting, []
            for deliver, context in waiting:
                self.send(deliver, context)


class Cluster:
    def __init__(self, loop: SimulatedLoop, chance: random.Random, clock: Callable[[], int], context: Context) -> None:
        self.loop = loop
        self.chance = chance
        self.clock = clock
        self.context = context
        self.topics: defaultdict[TopicPartition, Topic] = defaultdict(Topic)
        self.away = False
        self.links: dict[Link, None] = {}
        #: Called once each when a partition has new records.
        self.watchers: defaultdict[TopicPartition, list[Callable[[], None]]] = defaultdict(list)

    def append(self, tp: TopicPartition, batch: Sequence[tuple[bytes | None, bytes | None, Any]]) -> tuple[int, int]:
        """Append (key, value, headers); return the first offset and the log time."""
        topic, now = self.topics[tp], self.clock()
        first = topic.end
        for key, value, headers in batch:
            topic.records.append(Stored(topic.end, now, key, value, headers))
            topic.end += 1
        if watchers := self.watchers.pop(tp, None):
            for wake in watchers:
                wake()
        return first, now

    def go_away(self) -> None:
        self.away = True

    def come_back(self) -> None:
        self.away = False
        links, self.links = self.links, {}
        for link in links:
            if not link.cut:
                link.restore()

    def compact(self, lag_ms: int, keep_tombstones_ms: int) -> None:
        for tp, topic in self.topics.items():
            if tp.topic == CHANGELOG:
                topic.compact(self.clock(), lag_ms, keep_tombstones_ms)
