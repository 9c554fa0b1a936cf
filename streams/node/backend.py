"""The log that a node stands on, and who else stands on it."""

from collections.abc import Callable, Mapping
from typing import Protocol

from streams.log import Apply, Log, LogUser, RecordReader, StretchReader
from streams.ownership import Assignment
from topics.catalog import TopicPartition


class Membership(Protocol):
    """The nodes that share the partitions of a log. Loop only."""

    async def start(
        self,
        assigned: Callable[[Assignment], None],
        lost: Callable[[str], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """Join; `assigned` is called with each assignment, and `lost`, with a reason, when this node owns nothing more.

        Raises:
            ServiceError: the log does not let this node in.
        """

    def valid(self) -> bool:
        """Return whether nobody else can own what was assigned last: no append may begin otherwise."""

    def waiting(self) -> str | None:
        """Return what an assignment waits for, None when there is one."""

    def give_up(self, reason: str) -> None:
        """Give up all partitions, call `lost`, and ask for another assignment."""

    def rejoin(self) -> None:
        """Ask for another assignment; what is owned goes on meanwhile."""

    async def stop(self) -> None: ...


class ChangelogFollower(Protocol):
    """Keeps up with partitions of the changelog. Called by the loop."""

    def follow(self, starts: Mapping[TopicPartition, int], apply: Apply) -> None:
        """Hand what comes to `apply`, in a thread, each partition from its offset; in place of what was followed.

        The `apply` of before may be at work still, and be called once more.
        """


class LogBackend(Log, Protocol):
    """The embedded log or Kafka; `EmbeddedBackend` and `KafkaBackend` implement it. Loop only."""

    @property
    def name(self) -> bytes:
        """What tells this log from all others, b"" where it has no name."""

    @property
    def follower(self) -> ChangelogFollower | None:
        """Keeps up with the changelogs of other nodes' partitions, None for a log of one process."""

    @property
    def chunk_reader(self) -> StretchReader:
        """Reads chunks of sessions again that are no longer in memory."""

    @property
    def part_reader(self) -> RecordReader: ...

    async def start(self, user: LogUser) -> None:
        """Make or verify the topics, and tell `user` what happens; raise ServiceError if that fails."""

    def note_end(self, tp: TopicPartition, end: int) -> None:
        """Take where the changelog of an owned partition ends, to see what others have put there."""

    def drop(self, reason: str) -> None:
        """Forget what is not durable: this node may own nothing any more, and whoever waits for it gets Unavailable."""

    def refuses(self) -> str | None:
        """Return why no record is taken now, None while they are, as far as is known."""

    def now_ms(self) -> int:
        """Return the time by which records are stamped, in milliseconds."""

    async def close(self) -> None: ...
