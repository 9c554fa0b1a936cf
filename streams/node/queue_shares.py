"""How much of the log's queue each project holds: none may fill it alone."""

from topics.errors import Unavailable


class QueueShares:
    """Bytes of each project that wait for the log: at most so many, or one record that is larger. Loop only."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._bytes: dict[str, int] = {}

    def take(self, project: str, size: int) -> None:
        """Count bytes that are to be enqueued.

        Raises:
            Unavailable: the project has its share already; nothing was counted.
        """
        before = self._bytes.get(project, 0)
        if before and before + size > self._limit:
            raise Unavailable("the project's share of the log's queue is full")
        self._bytes[project] = before + size

    def give_back(self, project: str, size: int) -> None:
        """Bytes are enqueued no longer."""
        rest = self._bytes[project] - size
        if rest:
            self._bytes[project] = rest
        else:
            del self._bytes[project]
