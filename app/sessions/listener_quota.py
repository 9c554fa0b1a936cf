"""Limits the number of listeners, because each costs this node work for every window."""

from collections import Counter
from typing import Final

from topics.errors import Unavailable

LISTENERS: Final = 256
PROJECT_LISTENERS: Final = 64
RETRY_SECONDS: Final = 10
FULL: Final = "too many listeners here"
PROJECT_FULL: Final = f"the project has {PROJECT_LISTENERS} listeners here, its limit: close one"


class ListenerQuota:
    """Counts the listeners of this node."""

    def __init__(self) -> None:
        self._by_project: Counter[str] = Counter()

    def take(self, project: str) -> None:
        """Count a listener.

        Raises:
            Unavailable: there are too many.
        """
        if self._by_project[project] >= PROJECT_LISTENERS:
            raise Unavailable(PROJECT_FULL, RETRY_SECONDS)
        if self._by_project.total() >= LISTENERS:
            raise Unavailable(FULL, RETRY_SECONDS)
        self._by_project[project] += 1

    def give_back(self, project: str) -> None:
        self._by_project[project] -= 1
        if not self._by_project[project]:
            del self._by_project[project]
