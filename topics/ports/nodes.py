"""The operator's view of the nodes: their work, progress and faults."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Final, Literal, Protocol

import msgspec
from msgspec import Meta

NEWEST_PARKED: Final = 100


class TopicPlace(msgspec.Struct, frozen=True):
    """How far one topic of a partition is folded."""

    topic: str
    folded: Annotated[int, Meta(description="The offset below which everything is folded.")]
    behind: Annotated[int, Meta(description="Records not folded yet.")]
    behind_seconds: Annotated[float, Meta(description="Age of the oldest of them.")] = 0.0


class PartitionFacts(msgspec.Struct, frozen=True):
    """A partition that a node owns."""

    number: int
    state: Literal["serving", "coming", "stopped"]
    epoch: Annotated[int, Meta(description="Its owner's, on the changelog; 0 on a log of one process.")]
    topics: Sequence[TopicPlace]
    reason: Annotated[str | None, Meta(description="What it waits for, or why it stopped.")] = None


class StandbyFacts(msgspec.Struct, frozen=True):
    """A partition of another node whose table this node keeps up to date, to take it over at once."""

    number: int
    behind: Annotated[int, Meta(description="Records of its changelog that are not in the table yet.")]
    behind_seconds: Annotated[float, Meta(description="Age of the oldest of them.")] = 0.0
    reason: Annotated[str | None, Meta(description="Why it is not kept up to date now.")] = None


class QueueFacts(msgspec.Struct, frozen=True):
    """A queue: its content and its limit; null if it is not counted, or has no limit."""

    name: str
    bytes: int | None = None
    bytes_bound: int | None = None
    items: int | None = None
    items_bound: int | None = None


class EngineFacts(msgspec.Struct, frozen=True):
    """An engine that this node calls, and its calls since the start."""

    name: str
    address: Annotated[str, Meta(description="Without a path, which may hold a key.")]
    model: str | None
    reachable: Annotated[bool, Meta(description="Something answers there.")]
    calls: int
    failures: int
    in_flight: int
    in_flight_bound: int
    latency_ms: Annotated[int | None, Meta(description="Of the last successful call.")] = None
    error: Annotated[str | None, Meta(description="Of the last call that failed.")] = None
    failed_at: datetime | None = None
    failing: Annotated[bool, Meta(description="The last call failed.")] = False


class WorkerFacts(msgspec.Struct, frozen=True):
    """A worker process, or the slot of a future one."""

    process: Annotated[int | None, Meta(description="Its process id; null while there is none.")]
    project: Annotated[str | None, Meta(description="The only project that it serves; null if it serves all.")]
    state: Annotated[
        Literal["busy", "idle", "starting", "waiting"],
        Meta(description="`waiting`: a project's audio waits for another one's worker."),
    ]
    busy: Annotated[float, Meta(ge=0, le=1, description="Share of the last ten seconds in which it computed.")]
    sessions: Annotated[int, Meta(description="Sessions it analyses.")]
    waiting: Annotated[int, Meta(description="Requests that wait for it.")]
    deaths: Annotated[int, Meta(description="Workers that died in this slot.")]


class DiskFacts(msgspec.Struct, frozen=True):
    """A disk, and its contents."""

    holds: str
    total_bytes: int
    free_bytes: int
    kept_free_bytes: Annotated[int, Meta(description="Uploads are refused when less would stay free.")]


class AsideFacts(msgspec.Struct, frozen=True):
    """Damaged tables that were set aside. They stay on disk until an operator removes them."""

    directory: str
    count: int
    bytes: int


class ParkedRecord(msgspec.Struct, frozen=True):
    """A record that could not be folded."""

    topic: str
    partition: int
    offset: int
    at: Annotated[datetime, Meta(description="When it was set aside.")]
    cause: str


class DeadLetter(msgspec.Struct, frozen=True):
    """A record that could not be folded, whole."""

    topic: str
    partition: int
    offset: int
    at: Annotated[datetime, Meta(description="When it was set aside.")]
    cause: str
    key: Annotated[str, Meta(description="Of the record: the id of its session or job.")]
    value: Annotated[bytes, Meta(description="Of the record, in base64.")]


class ParkedFacts(msgspec.Struct, frozen=True):
    """The parked records of a node's partitions, which the log keeps for a week."""

    count: int
    newest: Annotated[Sequence[ParkedRecord], Meta(max_length=NEWEST_PARKED, description="The newest first.")]


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A node."""

    url: Annotated[str, Meta(description="Where other nodes reach it.")]
    version: str
    up_seconds: int
    lane: Annotated[
        int | msgspec.UnsetType, Meta(description="Its number among the lanes of its machine; absent if there is one.")
    ] = msgspec.UNSET
    not_ready: Annotated[str | None, Meta(description="Why it does not serve; null if it does.")]
    partitions: Sequence[PartitionFacts]
    partition_count: Annotated[int, Meta(description="Of the log, all nodes together.")]
    queues: Sequence[QueueFacts]
    engines: Sequence[EngineFacts]
    workers: Annotated[Sequence[WorkerFacts], Meta(description="Those that serve all first.")] = msgspec.field(
        default_factory=list
    )
    models: Annotated[Sequence[str], Meta(description="Sound models in memory, the one for new sessions first.")]
    disks: Sequence[DiskFacts]
    parked: Annotated[ParkedFacts | None, Meta(description="Null if the log did not answer; `log_error` says why.")]
    log_error: Annotated[str | None, Meta(description="Why the state of the log is unknown.")]
    sessions: Annotated[int, Meta(description="Open ones of its partitions.")]
    jobs: Annotated[int, Meta(description="Unfinished ones of its partitions.")]
    lag_seconds: Annotated[float, Meta(description="Age of the oldest chunk that is not analysed.")]
    job_lag_seconds: Annotated[float, Meta(description="Age of the oldest ready service of a job.")]
    rebuilt: Annotated[Sequence[str], Meta(description="Tables rebuilt from the log since the start, and why.")] = (
        msgspec.field(default_factory=list)
    )
    lost: Annotated[Sequence[str], Meta(description="Tables since the start that had more than the log, and why.")] = (
        msgspec.field(default_factory=list)
    )
    aside: AsideFacts | None = None
    outdated_speakers: Annotated[
        str | None, Meta(description="How many registered speakers the current model cannot use, and what to do.")
    ] = None
    database_error: Annotated[str | None, Meta(description="Why the last use of the database failed.")] = None
    standbys: Sequence[StandbyFacts] = msgspec.field(default_factory=list)
    clock_ahead_seconds: Annotated[
        float, Meta(description="How far the machine's clock is ahead of the log's, which stamps records.")
    ] = 0.0


class Nodes(Protocol):
    """The nodes of a deployment, as known to one of them."""

    def elsewhere(self) -> Sequence[str]:
        """Return the URLs of the other nodes, by the last assignment."""

    def owner(self, partition: int) -> str | None:
        """Return the URL of the node that owns a partition, None if it is this one or unknown."""

    async def dead_letter(self, topic: str, partition: int, offset: int) -> DeadLetter:
        """Return the record that was set aside from a place.

        Raises:
            NotFound: none was, or the log does not have it any more.
            Unavailable: the log does not answer.
        """

    async def put_back(self, topic: str, partition: int, offset: int) -> int:
        """Append such a record to its topic again, for its owner to fold; return the new offset.

        Raises:
            NotFound, Unavailable: as above; also Unavailable if the partition is not here.
        """

    @property
    def url(self) -> str:
        """The URL of this node."""

    def drain(self) -> None:
        """Begin to stop this node, as SIGTERM does: give its partitions to other nodes first, if there are any."""

    async def facts(self) -> NodeFacts:
        """Gather and return the facts about this node; each call has a cost."""
