"""Threads that work for the event loop, in turn by project; they report all that is done at each wake-up.

An executor of the standard library costs more for each call than decoding, framing and packing a chunk do: it makes two
futures with locks, and wakes the loop once for each.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, Final, NamedTuple, TypeVar

from streams.turns import Turns

T = TypeVar("T")
Item = TypeVar("Item")

#: Jobs that a thread does together at most.
TOGETHER: Final = 4
#: A thread that has not ended after so long is left alone, and ends with the process.
STOP_SECONDS: Final = 5.0


class Job(NamedTuple):
    """What a thread is to do."""

    future: asyncio.Future[Any]
    work: Callable[..., Any]
    arguments: tuple[Any, ...]
    #: `work` takes a list of what several jobs are about, and returns a list of what came of each.
    together: bool = False


#: A job's future, what it returned, and what it raised.
Outcome = tuple[asyncio.Future[Any], Any, BaseException | None]


class LoopThreads:
    """A fixed number of threads that work for one event loop. Loop only, except `_join` and `_work`."""

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

    async def stop(self) -> None:
        """Wait for the jobs that run, `STOP_SECONDS` at most; those that wait are not done. Allowed without a start."""
        with suppress(Empty):
            while True:
                self._calls.get_nowait()
        for _ in self._threads:
            self._calls.put(None)
        await asyncio.to_thread(self._join)

    def _join(self) -> None:
        deadline = time.monotonic() + STOP_SECONDS
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))

    def run(self, project: str, work: Callable[..., T], *arguments: object) -> asyncio.Future[T]:
        """Call `work` in a thread, in the project's turn; not if the future is cancelled before that comes."""
        return self._put(project, Job(self._loop.create_future(), work, arguments))

    def run_together(
        self, project: str, work: Callable[[Sequence[Item]], Sequence[T | Exception]], item: Item
    ) -> asyncio.Future[T]:
        """Call `work` as `run` does, with this item and such as wait for the same; it returns what came of each."""
        return self._put(project, Job(self._loop.create_future(), work, (item,), together=True))

    def _put(self, project: str, job: Job) -> asyncio.Future[Any]:
        with self._lock:
            self._jobs.put(project, job)
        self._calls.put(True)
        return job.future

    def _take(self) -> list[Job]:
        """Return what is next, as a rule one job: of those to be done together this thread's part."""
        with self._lock:
            job = self._jobs.take()
            if job is None:  # It was taken together with another.
                return []
            jobs = [job]
            if job.together:
                most = min(TOGETHER, 1 + self._calls.qsize() // len(self._threads))
                while len(jobs) < most and (other := self._jobs.peek()) is not None and other.work is job.work:
                    jobs.append(other)
                    self._jobs.take()
                    with suppress(Empty):
                        if self._calls.get_nowait() is None:
                            self._calls.put(None)
        return [job for job in jobs if not job.future.cancelled()]

    def _work(self) -> None:
        self._begin()
        while self._calls.get() is not None:
            jobs = self._take()
            if not jobs:
                continue
            self._outcomes.extend(_outcomes(jobs))
            # No more references, or the last results would live until the next job.
            del jobs
            # In this order: who finds the loop woken has put its outcome where the loop has yet to look.
            if not self._woken:
                self._woken = True
                with suppress(RuntimeError):  # The loop is closed: nobody waited for this.
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


def _outcomes(jobs: Sequence[Job]) -> list[Outcome]:
    """Do one job, or several together."""
    job = jobs[0]
    try:
        if not job.together:
            return [(job.future, job.work(*job.arguments), None)]
        results = job.work([one.arguments[0] for one in jobs])
    except BaseException as error:
        return [(one.future, None, error) for one in jobs]
    return [
        (one.future, None, result) if isinstance(result, Exception) else (one.future, result, None)
        for one, result in zip(jobs, results, strict=True)
    ]
