"""Protocols of a node's log, and of the nodes that share it."""

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from streams.log import Apply, Log, LogUser
from streams.ownership import Assignment
from topics.catalog import TopicPartition


class Membership(Protocol):
    """Assigns the partitions of a log to the nodes that share it. Loop only."""

    #: How often the others took this process for dead though it lived.
    removals: int

    @property
    def is_away(self) -> bool:
        """Return whether the broker that coordinates the nodes does not answer."""

    async def start(
        self,
        assigned: Callable[[Assignment], None],
        lost: Callable[[str], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """Join; call `assigned` with each assignment, and `lost` with a reason when this node has lost everything.

        Raises:
            ServiceError: the log rejects this node.
        """

    def valid(self) -> bool:
        """Return whether the last assignment certainly still holds; otherwise no append may begin."""

    def may_read(self) -> bool:
        """Return whether a heartbeat was counted lately; otherwise another node may have deleted what is here."""

    def waiting(self) -> str | None:
        """Return what the assignment waits for, None once it is there."""

    def give_up(self, reason: str) -> None:
        """Give up all partitions, call `lost`, and ask for another assignment."""

    def rejoin(self) -> None:
        """Ask for another assignment; owned partitions keep serving meanwhile."""

    def take(self, ready: frozenset[int]) -> None:
        """Ask for those partitions of the assignment that are coming: their tables are up to date here."""

    def leave(self) -> None:
        """Ask for an assignment without partitions, which the other nodes get; this node still learns who has them."""

    async def stop(self) -> None: ...


class ChangelogFollower(Protocol):
    """Reads partitions of the changelog as they grow. Called by the loop."""

    def follow(self, starts: Mapping[TopicPartition, int], apply: Apply) -> None:
        """Pass new records to `apply` in a thread, each partition from its offset; replace what was followed.

        The previous `apply` may still be running, and may be called once more.
        """

    def behind(self) -> Collection[TopicPartition]:
        """Return the followed partitions that have not reached the end that they had when they were followed."""


class LogBackend(Log, Protocol):
    """The log of a node, implemented by `EmbeddedBackend` and `KafkaBackend`. Loop only."""

    @property
    def name(self) -> bytes:
        """The identity of this log; b"" if it has none."""

    @property
    def exclusive(self) -> bool:
        """Whether no other process writes to this log, before, after or beside this one."""

    @property
    def follower(self) -> ChangelogFollower | None:
        """The follower of other nodes' changelogs; None for a log of one process."""

    async def start(self, user: LogUser) -> None:
        """Create or verify the topics and start calling `user`; raise ServiceError if that fails."""

    def note_end(self, tp: TopicPartition, end: int) -> bool:
        """Note the end of an owned partition's changelog, to detect records of other nodes.

        Return whether all up to it was acknowledged here, or reported as another node's by an earlier call.
        """

    def drop(self, reason: str) -> None:
        """Drop records that are not durable, and fail their futures with Unavailable: this node may own nothing now."""

    def fault(self, number: int) -> str | None:
        """Return why the log of a partition is not the one of before, None if it is; it must not be served then."""

    @property
    def removed(self) -> int:
        """The number of records of folded topics that were removed before this node folded them."""

    def note_removed(self, tp: TopicPartition, count: int) -> None:
        """Log and count records that were removed before they were folded."""

    @property
    def changed(self) -> str | None:
        """Why the whole log is not the one of before, None if it is, as far as is known."""

    def unfit(self) -> bool:
        """Return whether the log's settings do not keep what was promised."""

    async def erase(self) -> None:
        """Erase what was deleted from the log's files on this machine.

        Raises:
            Unavailable: not all of it; the next call continues.
        """

    def refuses(self) -> str | None:
        """Return why the log accepts no records now, None if it does, as far as is known."""

    def now_ms(self) -> int:
        """Return the clock that stamps records, in milliseconds."""

    def log_ms(self) -> int:
        """Return the log's time now in milliseconds, as far as this node knows; it may be behind, but not ahead."""

    async def close(self) -> None: ...
