"""A bound on the requests of one engine that are worked on or wait for it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from topics.errors import Unavailable


class Places:
    """So many requests may be inside; who comes then is asked to come again."""

    def __init__(self, most: int, engine: str, retry_s: int) -> None:
        self._most = most
        self._engine = engine
        self._retry_s = retry_s
        self.inside = 0

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """Hold a place.

        Raises:
            Unavailable: all are held.
        """
        if self.inside >= self._most:
            raise Unavailable(f"the {self._engine} engine is busy", self._retry_s)
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1
