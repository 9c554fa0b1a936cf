"""Threads of the code as greenlets: one runs at a time, and the seed decides when another overtakes it."""

import asyncio
import random
from collections.abc import Callable
from typing import Any, Final

import greenlet

from tests.simulation.loop import CURRENT, Process, SimulatedLoop

#: Duration of a thread's step between two places where another may overtake it.
STEP_SECONDS: Final = 0.0004
SLOW_STEP_SECONDS: Final = 0.15
SLOW_SHARE: Final = 0.03


class Thread:
    def __init__(self, body: Callable[[], None], process: Process) -> None:
        self.process = process
        self.greenlet = greenlet.greenlet(body)
        self.greenlet.gr_context = process.context.copy()
        #: Its next step; None while it waits to be woken.
        self.handle: asyncio.TimerHandle | None = None
        #: It is running, and waits for nothing.
        self.busy = True

    @property
    def ended(self) -> bool:
        return bool(self.greenlet.dead)


class Threads:
    """All threads of a simulation."""

    def __init__(self, loop: SimulatedLoop, chance: random.Random) -> None:
        self._loop = loop
        self._chance = chance
        self._by_process: dict[Process, list[Thread]] = {}
        self._current: Thread | None = None
        self._main = greenlet.getcurrent()
        #: Share and duration of slow steps.
        self.slow_share, self.slow_seconds = SLOW_SHARE, SLOW_STEP_SECONDS
        #: The history is over.
        self.closed = False
        loop.threads = self

    def close(self) -> None:
        """End the remaining threads: their stacks would keep the whole world alive, hidden from garbage collection."""
        self.closed = True
        for thread in [one for threads in self._by_process.values() for one in threads]:
            thread.greenlet.throw()

    def start(self, body: Callable[[], None]) -> Thread:
        process = self._current.process if self._current is not None else CURRENT.get()
        assert process is not None, "the world has no threads"
        thread = Thread(body, process)
        threads = self._by_process.setdefault(process, [])
        threads[:] = [one for one in threads if not one.ended]
        threads.append(thread)
        self._schedule(thread, self._chance.random() * STEP_SECONDS, busy=True)
        return thread

    @property
    def on_loop(self) -> bool:
        return self._current is None

    def sleep(self, seconds: float) -> None:
        self.pause(seconds, busy=False)

    def step(self, share: float = 1.0) -> None:
        """Let others overtake, here and now, with a probability of `share`."""
        chance = self._chance
        if chance.random() >= share:
            return
        if self._current is None:
            self._be_overtaken()
            return
        slow = chance.random() < self.slow_share
        self.pause(chance.random() * (self.slow_seconds if slow else STEP_SECONDS), busy=True)

    def pause(self, seconds: float, busy: bool) -> None:
        """Resume a thread after `seconds`."""
        thread = self._own()
        self._schedule(thread, seconds, busy)
        self._main.switch()

    def park(self) -> Thread:
        """Suspend a thread until it is woken."""
        thread = self._own()
        thread.handle, thread.busy = None, False
        self._main.switch()
        return thread

    def wake(self, thread: Thread) -> None:
        """Resume a thread that is parked or sleeps."""
        if thread.handle is not None:
            thread.handle.cancel()
        self._schedule(thread, self._chance.random() * STEP_SECONDS, busy=True)

    def current(self) -> Thread | None:
        return self._current

    def run_until(self, condition: Callable[[], bool]) -> None:
        """Block the loop, and run only the threads of its process until a condition is true."""
        assert self._current is None
        process = CURRENT.get()
        while not condition():
            waiting = [thread for thread in self._by_process.get(process, ()) if thread.handle is not None]  # type: ignore[arg-type]
            assert waiting, "the loop waits for a lock that nobody gives back"
            thread = min(waiting, key=lambda one: one.handle.when())  # type: ignore[union-attr]
            self._loop.now = max(self._loop.now, thread.handle.when())  # type: ignore[union-attr]
            self._step_now(thread)

    def _own(self) -> Thread:
        if self.closed:
            raise greenlet.GreenletExit
        assert self._current is not None, "the loop must not wait"
        return self._current

    def _schedule(self, thread: Thread, seconds: float, busy: bool) -> None:
        thread.busy = busy
        thread.handle = self._loop.call_at(self._loop.now + seconds, self._step, thread, context=thread.process.context)

    def _step(self, thread: Thread) -> None:
        thread.handle = None
        self._current = thread
        try:
            thread.greenlet.switch()
        finally:
            self._current = None

    def _step_now(self, thread: Thread) -> None:
        if thread.handle is not None:
            thread.handle.cancel()
        self._step(thread)

    def _be_overtaken(self) -> None:
        process = CURRENT.get()
        if process is None:
            return
        busy = [one for one in self._by_process.get(process, ()) if one.busy and one.handle is not None]
        if busy:
            self._step_now(self._chance.choice(busy))


class Lock:
    """A `threading.Lock`."""

    def __init__(self, threads: Threads) -> None:
        self.threads = threads
        self._held = False
        self._waiting: list[Thread] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock, blocking the loop meanwhile."""
        if self._held and not blocking:
            return False
        if self.threads.closed:
            return True
        if self._held and self.threads.on_loop:
            self.threads.run_until(lambda: not self._held)
        while self._held and (thread := self.threads.current()) is not None:
            self._waiting.append(thread)
            self.threads.park()
        self._held = True
        return True

    def release(self) -> None:
        self._held = False
        if self._waiting:
            self.threads.wake(self._waiting.pop(0))

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


class Condition(Lock):
    """A `threading.Condition`, with its own lock."""

    def __init__(self, threads: Threads) -> None:
        super().__init__(threads)
        self._parked: list[Thread] = []

    def wait(self, timeout: float | None = None) -> bool:
        thread = self.threads.current()
        assert thread is not None, "the loop must not wait"
        self._parked.append(thread)
        self.release()
        if timeout is None:
            self.threads.park()
        else:
            self.threads.sleep(timeout)
        woken = thread not in self._parked
        if not woken:
            self._parked.remove(thread)
        self.acquire()
        return woken

    def notify(self, count: int = 1) -> None:
        woken, self._parked = self._parked[:count], self._parked[count:]
        for thread in woken:
            self.threads.wake(thread)


class StartedThread:
    """A `threading.Thread`."""

    def __init__(
        self,
        threads: Threads,
        target: Callable[..., Any],
        name: str = "",
        daemon: bool = False,
        args: tuple[Any, ...] = (),
    ) -> None:
        self._threads = threads
        self._target, self._args = target, args
        self._thread: Thread | None = None

    def start(self) -> None:
        self._thread = self._threads.start(lambda: self._target(*self._args))

    def is_alive(self) -> bool:
        return self._thread is not None and not self._thread.ended

    def join(self, timeout: float | None = None) -> None:
        while self.is_alive():
            self._threads.sleep(0.01)
