"""The deadline of a call with a timeout."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ._errors import DeadlineExceeded


class Deadline:
    """The time by which a call must end: `timeout` seconds from now; None means never."""

    def __init__(self, timeout: float | None) -> None:
        if timeout != timeout:
            raise ValueError("the timeout is not a number")
        self._timeout = timeout
        self._end = None if timeout is None else time.monotonic() + timeout
        #: Why the last request of the call had no answer.
        self.reason = ""

    def left(self) -> float | None:
        """Return the seconds left; None if there is no limit.

        Raises:
            DeadlineExceeded: the time is up.
        """
        if self._end is None:
            return None
        left = self._end - time.monotonic()
        if left <= 0:
            raise self.exceeded()
        return left

    def exceeded(self) -> DeadlineExceeded:
        """Return the error for a call that is not done in time."""
        return DeadlineExceeded(": ".join(filter(None, (f"not done within {self._timeout:g} s", self.reason))))


@asynccontextmanager
async def within(deadline: Deadline) -> AsyncIterator[None]:
    """Cancel what is awaited inside when the deadline passes, and raise DeadlineExceeded."""
    try:
        async with asyncio.timeout(deadline.left()) as limit:
            yield
    except TimeoutError:
        if limit.expired():
            raise deadline.exceeded() from None
        raise
