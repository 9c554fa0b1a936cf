"""Counts the sessions or jobs of each project in a partition."""

import sys
from collections import Counter


class ByProject:
    """Maps the counted (`Head.counted`) sessions or jobs of a partition to their projects. Loop only."""

    def __init__(self) -> None:
        self._projects: dict[str, str] = {}
        self._counts: Counter[str] = Counter()

    def count(self, project: str) -> int:
        return self._counts[project]

    def __len__(self) -> int:
        return len(self._projects)

    def add(self, id: str, project: str) -> None:
        """Count an id. Idempotent."""
        if id not in self._projects:
            # One string for all of a project's ids.
            self._projects[id] = project = sys.intern(project)
            self._counts[project] += 1

    def discard(self, id: str) -> None:
        """Stop counting an id. Idempotent."""
        project = self._projects.pop(id, None)
        if project is not None:
            self._counts[project] -= 1
            if not self._counts[project]:
                del self._counts[project]
