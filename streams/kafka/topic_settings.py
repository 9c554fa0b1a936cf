"""The settings that topics need on the broker, the check of actual ones, and the command to correct them."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from topics.catalog import COMPACTION_LAG_MS, KEEP_TOMBSTONES_MS, Topic

MINUTE_MS: Final = 60 * 1000
HOUR_MS: Final = 60 * MINUTE_MS
#: Kafka does not compact the active segment, so a rebuild reads up to this many bytes of old rows per partition.
CHANGELOG_SEGMENT_BYTES: Final = 32 * 1024 * 1024
#: The largest share of replaced or deleted rows, besides recent ones, that a rebuild reads.
DIRTY_RATIO: Final = 0.3
#: The longest that a deleted row stays on the broker, even if little is written after it.
LONGEST_COMPACTION_LAG_MS: Final = 24 * HOUR_MS

#: Settings that may be higher than needed; Kafka writes -1 for no limit.
_AT_LEAST: Final = frozenset(
    {"retention.ms", "max.message.bytes", "min.insync.replicas", "delete.retention.ms", "min.compaction.lag.ms"}
)
_AT_MOST: Final = frozenset({"segment.ms", "segment.bytes", "max.compaction.lag.ms", "min.cleanable.dirty.ratio"})


class Misfit(msgspec.Struct, frozen=True):
    """A topic setting that is out of bounds."""

    name: str
    value: str
    needed: str

    def __str__(self) -> str:
        bound = " or more" if self.name in _AT_LEAST else " or less" if self.name in _AT_MOST else ""
        return f"{self.name}={self.value}, needed is {self.needed}{bound}"


def segment_ms(retention_ms: int) -> int:
    """Return the time to close a segment after, so that its records are removed soon after `retention_ms`.

    Kafka removes whole segments once their youngest record is old enough, so a record stays up to one segment longer.
    """
    return max(MINUTE_MS, retention_ms // 24)


def needed_settings(topic: Topic, replication: int = 1) -> dict[str, str]:
    """Return the settings that a topic needs on the broker, with `replication` copies of each partition."""
    settings: dict[str, object] = {
        "cleanup.policy": "compact" if topic.compact else "delete",
        "max.message.bytes": topic.max_bytes,
        # Brokers stamp records, because the clocks of nodes may be hours apart.
        "message.timestamp.type": "LogAppendTime",
        # A replica that lacks acknowledged records must never lead.
        "unclean.leader.election.enable": "false",
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
        # Acknowledge only with two copies. With two replicas in total, the loss of one broker would block all writes.
        settings["min.insync.replicas"] = 2
    return {name: str(value) for name, value in settings.items()}


def misfits(topic: Topic, actual: Mapping[str, str], replication: int = 1) -> list[Misfit]:
    """Return the settings among `actual` that must be changed; settings that are not in `actual` are not checked."""
    needed = needed_settings(topic, replication)
    kept = actual.get("retention.ms")
    if kept is not None and topic.retention_ms is not None and _is_enough("retention.ms", kept, needed["retention.ms"]):
        # If records are kept longer than needed, segments may be longer too.
        needed["segment.ms"] = str(2**63 - 1 if int(kept) < 0 else segment_ms(int(kept)))
    return [
        Misfit(name, value, need)
        for name, need in needed.items()
        if (value := actual.get(name)) is not None and not _is_enough(name, value, need)
    ]


def longer_retention_ms(topic: Topic, actual: Mapping[str, str]) -> int | None:
    """Return the retention of a topic (ms, -1 for ever) if it is longer than configured, otherwise None."""
    kept = int(actual.get("retention.ms", 0))
    return kept if topic.retention_ms is not None and (kept < 0 or kept > topic.retention_ms) else None


def alteration(bootstrap: str, topic: str, wrong: Sequence[Misfit]) -> str:
    """Return the command that corrects the settings of a topic."""
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
