"""A queue that serves projects in turn: one item of each project a round."""

from collections import OrderedDict, deque
from collections.abc import Container
from typing import Generic, TypeVar

T = TypeVar("T")


class Turns(Generic[T]):
    """Items that wait, each of a project; taken in turn by project, and within a project in the order of their ranks.

    One thread at a time. Between two turns of a project, each other project has at most one, so a project with few
    items does not wait for one with many. Putting and taking cost the same however many wait, as long as items come in
    the order of their ranks.
    """

    def __init__(self) -> None:
        #: The project whose turn is next comes first; none is without items.
        self._queues: OrderedDict[str, deque[tuple[float, T]]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._queues)

    def put(self, project: str, item: T, rank: float = 0) -> None:
        """Enqueue an item after those of its project whose rank is not above its own.

        A project that had no items comes after all others.
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
        """Return the next item, or None; a project without an item keeps its turn."""
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
        queue = next(iter(self._queues.values()), None)
        return None if queue is None else queue[0][1]

    def discard(self, project: str, item: T) -> None:
        """Remove an item, if it waits. The cost grows with the length of its project's queue."""
        queue = self._queues.get(project, ())
        place = next((place for place, (_, waiting) in enumerate(queue) if waiting == item), None)
        if place is not None:
            del self._queues[project][place]
            if not self._queues[project]:
                del self._queues[project]

    def clear(self) -> None:
        self._queues.clear()
