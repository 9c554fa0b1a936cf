"""Threads that work for the event loop, in turn by project; they report all that is done at each wake-up.

An executor of the standard library costs more for each call than decoding, framing and packing a chunk do: it makes two
futures with locks, and wakes the loop once for each.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, TypeVar

from streams.turns import Turns

T = TypeVar("T")

Job = tuple[asyncio.Future[Any], Callable[..., Any], tuple[object, ...]]
#: A job's future, what it returned, and what it raised.
Outcome = tuple[asyncio.Future[Any], Any, BaseException | None]


class LoopThreads:
    """A fixed number of threads that work for one event loop."""

    def __init__(self, count: int, name: str, begin: Callable[[], None] = lambda: None) -> None:
        """Start nothing yet; each thread calls `begin` first."""
        self._begin = begin
        self._threads = [Thread(target=self._work, name=f"{name}_{number}", daemon=True) for number in range(count)]
        self._jobs: Turns[Job] = Turns()
        #: Held for each use of `_jobs`.
        self._lock = Lock()
        #: A True for each job that was put; None ends a thread.
        self._calls: SimpleQueue[bool | None] = SimpleQueue()
        self._outcomes: deque[Outcome] = deque()
        #: The loop was woken and has not looked at the outcomes since.
        self._woken = False

    def start(self) -> None:
        """Begin to work for the running loop; allowed twice."""
        self._loop = asyncio.get_running_loop()
        for thread in self._threads:
            if thread.ident is None:
                thread.start()

    def stop(self) -> None:
        """Wait for the jobs that run; those that wait are not done. Allowed without a start."""
        with suppress(Empty):
            while True:
                self._calls.get_nowait()
        for _ in self._threads:
            self._calls.put(None)
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def run(self, project: str, work: Callable[..., T], *arguments: object) -> asyncio.Future[T]:
        """Call `work` in a thread, in the project's turn; not if the future is cancelled before that comes."""
        future: asyncio.Future[T] = self._loop.create_future()
        with self._lock:
            self._jobs.put(project, (future, work, arguments))
        self._calls.put(True)
        return future

    def _work(self) -> None:
        self._begin()
        while self._calls.get() is not None:
            with self._lock:
                job = self._jobs.take()
            assert job is not None  # There is one for each call.
            future, work, arguments = job
            if future.cancelled():
                continue
            try:
                self._outcomes.append((future, work(*arguments), None))
            except BaseException as error:
                self._outcomes.append((future, None, error))
            # No more references, or the last result would live until the next job.
            del job, future, work, arguments
            # In this order: who finds the loop woken has put its outcome where the loop has yet to look.
            if not self._woken:
                self._woken = True
                self._loop.call_soon_threadsafe(self._report)

    def _report(self) -> None:
        self._woken = False
        while self._outcomes:
            future, result, error = self._outcomes.popleft()
            if future.cancelled():
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
