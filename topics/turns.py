"""A queue that serves projects in turn, one item of each per round."""

import math
from collections import OrderedDict, deque
from collections.abc import Container
from typing import Generic, TypeVar

T = TypeVar("T")


class Turns(Generic[T]):
    """Queues items by project, and serves projects in turn, each in the order of its items' ranks.

    One thread at a time. Between two turns of a project, every other project has at most one, so a project with few
    items does not wait for one with many. `put` and `take` cost the same for any length if items arrive in rank order.
    """

    def __init__(self) -> None:
        #: Projects with items, the next to be served first.
        self._queues: OrderedDict[str, deque[tuple[float, T]]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._queues)

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
