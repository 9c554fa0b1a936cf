"""Queues that are fair to customers: one serves projects in turn, the other whoever has used the least."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Container
from heapq import heappop, heappush, heapreplace
from itertools import count
from typing import Final, Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Turns(Generic[T]):
    """Queues items by project, and serves projects in turn, each in the order of its items' ranks.

    One thread at a time. Between two turns of a project, every other project has at most one, so a project with few
    items does not wait for one with many. `put` and `take` cost the same for any length if items arrive in rank order.
    """

    def __init__(self) -> None:
        #: Projects with items, the next to be served first.
        self._queues: OrderedDict[str, deque[tuple[float, T]]] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of projects with items."""
        return len(self._queues)

    def put(self, project: str, item: T, rank: float = 0) -> None:
        """Enqueue an item after its project's items of the same or lower rank.

        A project that had no items goes behind all others.
        """
        queue = self._queues.get(project)
        if queue is None:
            self._queues[project] = deque([(rank, item)])
        elif queue[-1][0] <= rank:
            queue.append((rank, item))
        else:
            place = len(queue) - 1
            while place and queue[place - 1][0] > rank:
                place -= 1
            queue.insert(place, (rank, item))

    def take(self, passed_over: Container[str] = ()) -> T | None:
        """Return the next item, or None; skipped projects (`passed_over`) keep their turn."""
        queues = self._queues
        if passed_over:
            chosen = next((project for project in queues if project not in passed_over), None)
            if chosen is None:
                return None
            queues.move_to_end(chosen, last=False)
        elif not queues:
            return None
        project, queue = queues.popitem(last=False)
        _, item = queue.popleft()
        if queue:
            queues[project] = queue
        return item

    def peek(self) -> T | None:
        """Return the item that `take` would return."""
        return next(iter(self._queues.values()))[0][1] if self._queues else None

    def discard(self, project: str, item: T) -> None:
        """Remove an item if it is queued. The cost grows with the length of its project's queue."""
        queue = self._queues.get(project, ())
        place = next((place for place, (_, waiting) in enumerate(queue) if waiting == item), None)
        if place is not None:
            del self._queues[project][place]
            if not self._queues[project]:
                del self._queues[project]

    def clear(self) -> None:
        self._queues.clear()


class Sharing:
    """Tells whether several projects were served within some seconds. One thread at a time; times are monotonic."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._last = ""
        self._until = -math.inf

    def note(self, project: str, now: float) -> None:
        """Note that a project, which has a name, is served now."""
        if project != self._last:
            if self._last:
                self._until = now + self._seconds
            self._last = project

    def is_shared(self, now: float) -> bool:
        return now < self._until


class Holder(NamedTuple):
    """Whose work something is: an organization, its project, and the session or job that it concerns, or ""."""

    organization: str
    project: str
    subject: str = ""


#: Holders without work that a level of `Shares` remembers.
REMEMBERED: Final = 1024


class Shares(Generic[T]):
    """Queues items by holder, and serves the holder that has used the least. One thread at a time.

    What is charged counts for the organization, for the project within it, and for the subject within that. So an
    organization gains nothing from many projects, nor a project from many sessions. Nobody saves up for later: whoever
    had nothing to do begins at the level of those that are served.
    """

    def __init__(self) -> None:
        self._root: _Share[T] = _Share()
        self._number = count()

    def __bool__(self) -> bool:
        return bool(self._root.waiting)

    def put(self, holder: Holder, item: T) -> None:
        """Enqueue an item behind the others of its holder."""
        share = self._root
        for name in holder:
            part = share.parts.get(name) or share.add(name)
            if not part.is_waiting:
                part.is_waiting = True
                if part.used < share.level:
                    part.used = share.level
                heappush(share.waiting, (part.used, next(self._number), name))
            share = part
        share.items.append(item)

    def take(self) -> T | None:
        """Return the next item, or None; holders that have used the same are served in turn."""
        share = self._root
        if not share.waiting:
            return None
        way: list[_Share[T]] = []
        while waiting := share.waiting:
            used, _, name = waiting[0]
            part = share.parts[name]
            if part.used > used:  # It was charged while it waited.
                heapreplace(waiting, (part.used, next(self._number), name))
                continue
            if share.level < used:
                share.level = used
            way.append(share)
            share = part
        item = share.items.popleft()
        for above in reversed(way):
            name = above.waiting[0][2]
            if share.items or share.waiting:
                if len(above.waiting) > 1:
                    heapreplace(above.waiting, (share.used, next(self._number), name))
            else:
                heappop(above.waiting)
                share.is_waiting = False
            share = above
        return item

    def charge(self, holder: Holder, cost: float) -> None:
        """Count what a holder has used."""
        share = self._root
        for name in holder:
            part = share.parts.get(name) or share.add(name)
            part.used = (part.used if part.used > share.level else share.level) + cost
            if not share.waiting:
                share.level = part.used
            share = part


class _Share(Generic[T]):
    __slots__ = ("is_waiting", "items", "level", "parts", "used", "waiting")

    def __init__(self) -> None:
        #: Of the parent's time, and the least that a waiting part has used.
        self.used = self.level = 0.0
        self.is_waiting = False
        self.items: deque[T] = deque()
        self.parts: dict[str, _Share[T]] = {}
        #: A heap of the parts that wait: what each had used, and a number, so that equal ones take turns.
        self.waiting: list[tuple[float, int, str]] = []

    def add(self, name: str) -> _Share[T]:
        """Add a part; forget those without work if there are too many."""
        if len(self.parts) >= REMEMBERED:
            self.parts = {name: part for name, part in self.parts.items() if part.is_waiting}
        part = self.parts[name] = _Share()
        return part
