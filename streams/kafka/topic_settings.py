"""The settings of topics: what each needs on the broker, which do not fit, and how to alter them."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from topics.catalog import COMPACTION_LAG_MS, KEEP_TOMBSTONES_MS, Topic

MINUTE_MS: Final = 60 * 1000
HOUR_MS: Final = 60 * MINUTE_MS
#: The segment that is being written is not compacted, so a rebuild reads this many old rows of each partition.
CHANGELOG_SEGMENT_BYTES: Final = 32 * 1024 * 1024
#: A rebuild also reads rows that were replaced or deleted: at most this share of the whole, beside recent ones.
DIRTY_RATIO: Final = 0.3
#: Time after which a deleted row leaves the broker, however little is written after it.
LONGEST_COMPACTION_LAG_MS: Final = 24 * HOUR_MS

#: More than is needed does no harm; Kafka writes -1 for no limit.
_AT_LEAST: Final = frozenset(
    {"retention.ms", "max.message.bytes", "min.insync.replicas", "delete.retention.ms", "min.compaction.lag.ms"}
)
_AT_MOST: Final = frozenset({"segment.ms", "segment.bytes", "max.compaction.lag.ms", "min.cleanable.dirty.ratio"})


class Misfit(msgspec.Struct, frozen=True):
    """A setting of a topic that does not do."""

    name: str
    value: str
    needed: str

    def __str__(self) -> str:
        bound = " or more" if self.name in _AT_LEAST else " or less" if self.name in _AT_MOST else ""
        return f"{self.name}={self.value}, needed is {self.needed}{bound}"


def segment_ms(retention_ms: int) -> int:
    """Return after how long a segment must be closed so that its records go soon after `retention_ms`.

    Kafka removes whole segments, once their youngest record is old enough: a record stays for up to one segment longer.
    """
    return max(MINUTE_MS, retention_ms // 24)


def needed_settings(topic: Topic, replication: int = 1) -> dict[str, str]:
    """Return the settings that a topic needs on the broker, with `replication` copies of each partition."""
    settings: dict[str, object] = {
        "cleanup.policy": "compact" if topic.compact else "delete",
        "max.message.bytes": topic.max_bytes,
        # The brokers' clocks give the time of records, because those of nodes may be hours apart.
        "message.timestamp.type": "LogAppendTime",
    }
    if topic.retention_ms is not None:
        settings |= {"retention.ms": topic.retention_ms, "segment.ms": segment_ms(topic.retention_ms)}
    if topic.compact:
        settings |= {
            "segment.ms": HOUR_MS,
            "segment.bytes": max(CHANGELOG_SEGMENT_BYTES, topic.max_bytes),
            "delete.retention.ms": KEEP_TOMBSTONES_MS,
            "min.compaction.lag.ms": COMPACTION_LAG_MS,
            "max.compaction.lag.ms": LONGEST_COMPACTION_LAG_MS,
            "min.cleanable.dirty.ratio": DIRTY_RATIO,
        }
    if replication > 2:
        # An answer means at least two copies. With two copies in total, one broker that is away would stop everything.
        settings["min.insync.replicas"] = 2
    return {name: str(value) for name, value in settings.items()}


def misfits(topic: Topic, actual: Mapping[str, str], replication: int = 1) -> list[Misfit]:
    """Return what to alter of a topic with the settings `actual`; unreported settings are not checked."""
    needed = needed_settings(topic, replication)
    kept = actual.get("retention.ms")
    if kept is not None and topic.retention_ms is not None and _is_enough("retention.ms", kept, needed["retention.ms"]):
        # If records are kept longer than asked, segments may be longer too.
        needed["segment.ms"] = str(2**63 - 1 if int(kept) < 0 else segment_ms(int(kept)))
    return [
        Misfit(name, value, need)
        for name, need in needed.items()
        if (value := actual.get(name)) is not None and not _is_enough(name, value, need)
    ]


def longer_retention_ms(topic: Topic, actual: Mapping[str, str]) -> int | None:
    """Return how long a topic keeps records when that is longer than asked, -1 for ever; None when it is not."""
    kept = int(actual.get("retention.ms", 0))
    return kept if topic.retention_ms is not None and (kept < 0 or kept > topic.retention_ms) else None


def alteration(bootstrap: str, topic: str, wrong: Sequence[Misfit]) -> str:
    """Return the command that gives a topic the settings which it needs."""
    settings = ",".join(f"{one.name}={one.needed}" for one in wrong)
    return (
        f"kafka-configs.sh --bootstrap-server {bootstrap} --alter --entity-type topics --entity-name {topic} "
        f"--add-config {settings}"
    )


def _is_enough(name: str, value: str, needed: str) -> bool:
    if name in _AT_LEAST:
        return value == "-1" or int(value) >= int(needed)
    if name in _AT_MOST:
        return float(value) <= float(needed)
    return value == needed
