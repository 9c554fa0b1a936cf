"""Readers that wait for a session: woken by the agents, never polling."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable

from topics.errors import Unavailable


class Follower:
    """One waiting reader; see `topics.ports.follower.Follower`."""

    def __init__(self, followers: Followers, session: str) -> None:
        self._followers = followers
        self._session = session
        self._event = asyncio.Event()
        self._lost = False

    def wake(self, lost: bool = False) -> None:
        """Something changed, or the partition went away."""
        self._lost = self._lost or lost
        self._event.set()

    async def changed(self, timeout: float) -> bool:
        """Wait for a change; False after `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        if self._lost:
            raise Unavailable("the session moved to another node")
        return True

    def close(self) -> None:
        """Stop following."""
        self._followers.leave(self._session, self)


class Followers:
    """All waiting readers of this process, by session."""

    def __init__(self) -> None:
        self._sessions: defaultdict[str, set[Follower]] = defaultdict(set)
        #: Nobody may wait any more.
        self.withdrawn = False

    def follow(self, session: str) -> Follower:
        """Register a reader."""
        follower = Follower(self, session)
        self._sessions[session].add(follower)
        if self.withdrawn:
            follower.wake(lost=True)
        return follower

    def leave(self, session: str, follower: Follower) -> None:
        """Forget a reader; allowed twice."""
        waiting = self._sessions.get(session)
        if waiting is not None:
            waiting.discard(follower)
            if not waiting:
                del self._sessions[session]

    def notify(self, sessions: Iterable[str]) -> None:
        """Wake the readers of some sessions."""
        for session in sessions:
            for follower in self._sessions.get(session, ()):
                follower.wake()

    def lose(self) -> None:
        """Wake everybody with Unavailable: the partitions are being taken away."""
        for waiting in self._sessions.values():
            for follower in waiting:
                follower.wake(lost=True)

    def withdraw(self) -> None:
        """The node is about to stop: as `lose`, also for who comes later."""
        self.withdrawn = True
        self.lose()
