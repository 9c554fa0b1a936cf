"""What an operator is told of the nodes: what each has, how far it is, and what does not work."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, Literal, Protocol

import msgspec

#: Parked records that are shown.
NEWEST_PARKED: Final = 100


class TopicPlace(msgspec.Struct, frozen=True):
    """How far one topic of a partition is folded."""

    topic: str
    #: The offset below which everything is folded.
    folded: int
    #: Records on the log that are not.
    behind: int


class PartitionFacts(msgspec.Struct, frozen=True):
    """A partition that a node owns."""

    number: int
    state: Literal["serving", "coming", "stopped"]
    #: That of its owner on the changelog; 0 on a log of one process.
    epoch: int
    topics: Sequence[TopicPlace]
    #: What it waits for, or why it stopped.
    reason: str | None = None


class QueueFacts(msgspec.Struct, frozen=True):
    """Something that fills up: what is in it, and its bound; null for what is not counted, or has no bound."""

    name: str
    bytes: int | None = None
    bytes_bound: int | None = None
    items: int | None = None
    items_bound: int | None = None


class EngineFacts(msgspec.Struct, frozen=True):
    """An engine that this node is set to call, as its calls went since the start."""

    name: str
    #: Without a path, which may hold a key.
    address: str
    model: str | None
    #: Something answers there.
    reachable: bool
    calls: int
    failures: int
    in_flight: int
    in_flight_bound: int
    #: Of the last call that went well.
    latency_ms: int | None = None
    #: Of the last call that failed.
    error: str | None = None
    failed_at: datetime | None = None
    #: The last call failed.
    failing: bool = False


class DiskFacts(msgspec.Struct, frozen=True):
    """A disk, by what lies on it."""

    holds: str
    total_bytes: int
    free_bytes: int
    #: Uploads are refused when less would stay free.
    kept_free_bytes: int


class ParkedRecord(msgspec.Struct, frozen=True):
    """A record that could not be folded."""

    topic: str
    partition: int
    offset: int
    #: When it was set aside.
    at: datetime
    cause: str


class ParkedFacts(msgspec.Struct, frozen=True):
    """The parked records of a node's partitions, which the log keeps for a week."""

    count: int
    #: At most `NEWEST_PARKED`, the newest first.
    newest: Sequence[ParkedRecord]


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A node."""

    #: Where other nodes reach it.
    url: str
    version: str
    up_seconds: int
    #: Why it does not serve, None where it does.
    not_ready: str | None
    partitions: Sequence[PartitionFacts]
    #: Of the log, all nodes together.
    partition_count: int
    queues: Sequence[QueueFacts]
    engines: Sequence[EngineFacts]
    #: Sound models in memory, the one for new sessions first.
    models: Sequence[str]
    disks: Sequence[DiskFacts]
    #: None where the log did not say, with the reason in `log_error`.
    parked: ParkedFacts | None
    log_error: str | None
    #: Not ended or not done.
    sessions: int
    jobs: int
    #: Age of the oldest chunk that is not analysed, and of the oldest ready service of a job, in seconds.
    lag_seconds: float
    job_lag_seconds: float


class Nodes(Protocol):
    """The nodes of a deployment, as one of them knows them."""

    def elsewhere(self) -> Sequence[str]:
        """Return the URLs of the other nodes that own partitions, as of the last assignment."""
        ...

    async def facts(self) -> NodeFacts:
        """Return what this node is. Asking costs; nothing is gathered while nobody asks."""
        ...
