"""Readers that wait for a session or job to change, woken by each written batch without polling."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from typing import Final

from topics.errors import Unavailable

#: Readers woken in one iteration of the event loop: answering one takes some 150 us.
WAKES: Final = 16


class Subscription:
    """Calls one reader when a session or job changes. Loop only."""

    def __init__(self, followers: Followers, id: str, woken: Callable[[bool], None]) -> None:
        """Call `woken` for each batch that changes the id, with True if its partition was lost. It must not raise."""
        self.wake = woken
        self._followers = followers
        self._id = id

    def close(self) -> None:
        """End it. Idempotent."""
        self._followers.leave(self._id, self)
        self.wake = _ignore  # A follower's own method refers to it: it would wait for the garbage collector.


def _ignore(lost: bool) -> None:
    pass


class Follower(Subscription):
    """Lets one reader wait for a session or job to change. Loop only."""

    def __init__(self, followers: Followers, id: str) -> None:
        super().__init__(followers, id, self._note)
        self._event = asyncio.Event()
        self._lost = False

    def _note(self, lost: bool) -> None:
        self._lost = self._lost or lost
        self._event.set()

    async def changed(self, timeout: float) -> bool:
        try:
            async with asyncio.timeout(timeout):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        if self._lost:
            raise Unavailable("this node no longer serves it: ask again")
        return True


class Followers:
    """Holds all waiting readers of this process, by id. Loop only."""

    def __init__(self) -> None:
        self._by_id: defaultdict[str, set[Subscription]] = defaultdict(set)
        #: Whether the node is about to stop, so that no reader may wait.
        self.withdrawn = False
        #: Readers to wake, by id; the id whose turn it is comes first.
        self._waking: OrderedDict[str, set[Subscription]] = OrderedDict()
        self._scheduled = False

    def follow(self, id: str) -> Follower:
        follower = Follower(self, id)
        self._add(id, follower)
        return follower

    def subscribe(self, id: str, woken: Callable[[bool], None]) -> Subscription:
        subscription = Subscription(self, id, woken)
        self._add(id, subscription)
        return subscription

    def _add(self, id: str, follower: Subscription) -> None:
        self._by_id[id].add(follower)
        if self.withdrawn:
            follower.wake(True)

    def leave(self, id: str, follower: Subscription) -> None:
        """Remove a reader. Idempotent."""
        waiting = self._by_id.get(id)
        if waiting is not None:
            waiting.discard(follower)
            if not waiting:
                del self._by_id[id]

    def notify(self, ids: Iterable[str]) -> None:
        """Wake the readers of these ids, `WAKES` in each iteration of the event loop, in turn by id.

        Otherwise thousands of readers of one session would hold the loop for a tenth of a second.
        """
        for id in ids:
            if waiting := self._by_id.get(id):
                self._waking.setdefault(id, set()).update(waiting)
        if self._waking and not self._scheduled:
            self._wake_some()

    def _wake_some(self) -> None:
        for _ in range(WAKES):
            if not self._waking:
                break
            id, waiting = self._waking.popitem(last=False)
            follower = waiting.pop()
            if waiting:
                self._waking[id] = waiting
            follower.wake(False)
        self._scheduled = bool(self._waking)
        if self._scheduled:
            asyncio.get_running_loop().call_soon(self._wake_some)

    def lose(self, is_lost: Callable[[str], bool] = lambda id: True) -> None:
        """Wake the readers of ids in lost partitions, with Unavailable."""
        lost = [follower for id, waiting in self._by_id.items() if is_lost(id) for follower in waiting]
        for follower in lost:
            follower.wake(True)

    def withdraw(self) -> None:
        """Wake all readers with Unavailable, now and later, because the node is about to stop."""
        self.withdrawn = True
        self.lose()
