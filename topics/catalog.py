"""The catalogue of topics: names, content, retention, and consistent size limits.

All topics have the same partition count. A session's or job's commands, results and rows are in the partitions of one
number, which belong to one node.
"""

from typing import Final, NamedTuple

import msgspec

#: The prefix of every name in this file. A deployment on Kafka may choose another one.
APP: Final = "earshot"
TABLE: Final = "rows"

DEFAULT_CHUNK_LIMIT: Final = 1024 * 1024
#: Room for key, header, msgpack framing and batch overhead around a chunk.
RECORD_SLACK: Final = 64 * 1024
KEEP_PARKED_MS: Final = 7 * 24 * 3600 * 1000

#: How long a compacted topic keeps tombstones. A reader that was away longer may have missed deletions, and must
#: start over.
KEEP_TOMBSTONES_MS: Final = 24 * 3600 * 1000
#: How long a compacted topic keeps superseded records. Within this time, the owner of a partition detects rows that
#: another node wrote late, and rewrites its own.
COMPACTION_LAG_MS: Final = 10 * 60 * 1000


class TopicPartition(NamedTuple):
    """A partition of a topic; equal to the pairs of the same name in Faust and aiokafka."""

    topic: str
    partition: int


class Topic(msgspec.Struct, frozen=True):
    """The required properties of a topic."""

    name: str
    carries: str
    producer: str
    consumer: str
    #: Retention in milliseconds, None for ever; a compacted topic keeps the last record of each key.
    retention_ms: int | None = None
    compact: bool = False
    max_bytes: int = DEFAULT_CHUNK_LIMIT + RECORD_SLACK


COMMANDS: Final = "earshot.session.command.v1"
COMMANDS_PARKED: Final = "earshot.session.command.dlq.v1"
JOB_COMMANDS: Final = "earshot.job.command.v1"
JOB_RESULTS: Final = "earshot.job.result.v1"
JOB_COMMANDS_PARKED: Final = "earshot.job.command.dlq.v1"
JOB_RESULTS_PARKED: Final = "earshot.job.result.dlq.v1"
CHANGELOG: Final = f"{APP}-{TABLE}-changelog"

#: The order in which a takeover reads a partition's topics. Commands come first, because a result needs its job. The
#: order is fixed, so that records are folded after a crash as before it.
FOLD_ORDER: Final = ((COMMANDS, JOB_COMMANDS), (JOB_RESULTS,))
FOLDED: Final = frozenset(topic for topics in FOLD_ORDER for topic in topics)
PARKED: Final = {
    COMMANDS: COMMANDS_PARKED,
    JOB_COMMANDS: JOB_COMMANDS_PARKED,
    JOB_RESULTS: JOB_RESULTS_PARKED,
}


def record_limit(chunk_limit: int) -> int:
    """Return the record size that producer, consumer, topic and broker must accept for chunks of `chunk_limit`."""
    return max(chunk_limit, DEFAULT_CHUNK_LIMIT) + RECORD_SLACK


def topics(audio_retention_ms: int, chunk_limit: int = DEFAULT_CHUNK_LIMIT) -> tuple[Topic, ...]:
    """Return the catalogue for a deployment that keeps audio for `audio_retention_ms`."""
    limit = record_limit(chunk_limit)
    folded = {
        COMMANDS: (
            "Opened Chunk Sealed Deleted Expired Failed Metered Tuned Renamed SourceNoted",
            "edge, sweeper, analyser, ledger",
            "intake",
        ),
        JOB_COMMANDS: ("Part Accepted Removed Overdue", "edge, sweeper", "job-intake"),
        JOB_RESULTS: ("Started Stopped Portion Finished Billed", "runner, ledger", "job-results"),
    }
    return (
        *(Topic(name, *about, audio_retention_ms, max_bytes=limit) for name, about in folded.items()),
        *(
            Topic(PARKED[name], "Parked", consumer, "people", KEEP_PARKED_MS, max_bytes=limit + RECORD_SLACK)
            for name, (_, _, consumer) in folded.items()
        ),
        Topic(CHANGELOG, "table rows", "the agents", "recovery", compact=True, max_bytes=limit),
    )
