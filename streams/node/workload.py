"""The life cycle that the sessions and the jobs of a node share."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic

from streams.folding.agent import Changes
from streams.folding.followers import Followers
from streams.folding.references import References
from streams.folding.sweeper import sweep
from streams.node.partitions import OwnedPartitions, S, Stores
from streams.node.sender import RecordSender


class Workload(ABC, Generic[S]):
    """What a node does for its sessions, or for its jobs.

    The node calls `start` once; for each assignment of partitions `survey` with every one of them, then `begin`;
    `lose` when a rebalance takes them away; and `stop` once. Its agents call `announce` after each batch.
    """

    #: The topic of commands.
    commands: str

    def __init__(
        self, partitions: OwnedPartitions, stores: Stores[S], sender: RecordSender, followers: Followers
    ) -> None:
        self.partitions = partitions
        self.stores = stores
        self.sender = sender
        self.followers = followers
        #: Records of the command topic that hold audio which is still needed.
        self.references = References()
        #: What is to be done once the partitions serve.
        self.early = Changes()

    @abstractmethod
    def start(self, ended: Callable[[asyncio.Task[None]], None]) -> None:
        """Start the tasks that work; `ended` is called with each that ends."""

    @abstractmethod
    async def survey(self, partition: int) -> None:
        """Find in the rows of a partition what is to be done (`early`), and which audio must stay in the log."""

    def begin(self) -> int:
        """The partitions serve: begin what is to be done; return how many sessions or jobs have work."""
        early, self.early = self.early, Changes()
        self.take_work(early)
        return len(early.work)

    def announce(self, changes: Changes) -> None:
        """A batch is written: cancel work on what is gone, wake readers, and take new work or keep it for `begin`."""
        for id in changes.gone:
            self.cancel(id)
        self.followers.notify(changes.changed)
        if self.partitions.ready:
            self.take_work(changes)
        else:
            self.early.work.update(changes.work)
            self.early.unbilled.update(changes.unbilled)

    @abstractmethod
    def take_work(self, changes: Changes) -> None:
        """Begin the work of `changes`, or queue it."""

    @abstractmethod
    def cancel(self, id: str) -> None:
        """Cancel the work on a session or job that is gone."""

    @abstractmethod
    def cancel_all(self) -> None:
        """Cancel all work; what is not done is found again in the rows."""

    def lose(self) -> None:
        """The partitions are being taken away: cancel all work, and forget what is known of it."""
        self.early = Changes()
        self.references.clear()
        self.cancel_all()

    async def sweep(self, now_ms: int) -> None:
        """Append the commands that end what is due at `now_ms`, in log time."""
        await sweep(self.stores.all_serving(), now_ms, self.expire)

    @abstractmethod
    async def expire(self, id: str, due: int) -> None:
        """Append the command that ends an id whose index entry has this due time (ms)."""

    @abstractmethod
    async def stop(self) -> None:
        """Cancel all work and end the tasks."""
