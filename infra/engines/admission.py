"""Limits the requests that one engine works on or queues."""

import contextlib
from collections.abc import Iterator

from topics.errors import Unavailable


class AdmissionLimit:
    """Admits at most `most` requests at a time; others must retry after `retry_s` seconds."""

    def __init__(self, most: int, engine: str, retry_s: int) -> None:
        self._most = most
        self._engine = engine
        self._retry_s = retry_s
        self.inside = 0

    @contextlib.contextmanager
    def slot(self) -> Iterator[None]:
        """Hold one slot.

        Raises:
            Unavailable: all slots are taken.
        """
        if self.inside >= self._most:
            raise Unavailable(f"the {self._engine} engine is busy", self._retry_s)
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1
