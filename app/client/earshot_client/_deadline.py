"""The end of a call that has a timeout."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ._errors import DeadlineExceeded


class Deadline:
    """The moment at which a call must have ended: `timeout` seconds from now, or never with None."""

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout
        self._end = None if timeout is None else time.monotonic() + timeout
        #: Why the last request of the call had no answer.
        self.reason = ""

    @classmethod
    def of(cls, timeout: float | Deadline | None) -> Deadline:
        """Return a deadline as it is, or one in so many seconds."""
        return timeout if isinstance(timeout, cls) else cls(timeout)  # type: ignore[arg-type]

    def left(self) -> float | None:
        """Return the seconds that are left, None where there is no limit.

        Raises:
            DeadlineExceeded: the moment has passed.
        """
        if self._end is None:
            return None
        left = self._end - time.monotonic()
        if left <= 0:
            raise self.exceeded()
        return left

    def exceeded(self) -> DeadlineExceeded:
        """Return the error of a call that is not done in time."""
        return DeadlineExceeded(": ".join(filter(None, (f"not done within {self._timeout:g} s", self.reason))))


@asynccontextmanager
async def within(deadline: Deadline) -> AsyncIterator[None]:
    """Cancel what is awaited here when the deadline passes, and raise DeadlineExceeded."""
    try:
        async with asyncio.timeout(deadline.left()) as limit:
            yield
    except TimeoutError:
        if limit.expired():
            raise deadline.exceeded() from None
        raise
