"""How many may listen at a time: each listener costs this node work for every window."""

from collections import Counter
from typing import Final

from topics.errors import Unavailable

LISTENERS: Final = 256
#: Listeners of one project.
PROJECT_LISTENERS: Final = 64
RETRY_SECONDS: Final = 10
FULL: Final = "too many listen here at a time"
PROJECT_FULL: Final = f"the project has {PROJECT_LISTENERS} listeners here, which is its most"


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
