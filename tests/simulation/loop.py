"""An event loop whose time jumps to the next timer, and processes on it that can be paused and killed."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any, Final, TypeVarTuple

if TYPE_CHECKING:
    from tests.simulation.threads import Threads

A = TypeVarTuple("A")

#: Virtual seconds with nothing but timers after which a history counts as stuck.
LONGEST_SECONDS: Final = 4000.0


class Stuck(AssertionError):
    """No event is left, or the history takes too long."""


class Process:
    """A simulated process: everything started in its context stops while it is paused."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.paused = self.dead = False
        self.held: list[asyncio.Handle] = []
        self.context: Context = copy_context()
        self.context.run(CURRENT.set, self)

    def pause(self) -> None:
        self.paused = True

    def resume(self, loop: SimulatedLoop) -> None:
        """Run what became due meanwhile, in order."""
        self.paused = False
        held, self.held = self.held, []
        loop.release(held)

    def kill(self) -> None:
        self.dead, self.held = True, []


#: The process whose code runs, None for the surrounding world.
CURRENT: ContextVar[Process | None] = ContextVar("process", default=None)


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs callbacks in order; when idle, its clock jumps to the next timer."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._order = 0
        #: Set by `Threads`: runs functions in simulated threads.
        self.threads: Threads
        self.failures: list[BaseException] = []
        self.set_exception_handler(self._note_failure)

    def time(self) -> float:
        return self.now

    def release(self, handles: list[asyncio.Handle]) -> None:
        self._ready.extend(handles)  # type: ignore[attr-defined]

    def end(self) -> None:
        self._ready.clear()  # type: ignore[attr-defined]
        self._timers.clear()
        self.close()

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Run a function in a simulated thread; `asyncio.to_thread` calls this."""
        future = self.create_future()
        context = copy_context()

        def settle(result: Any, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        def body() -> None:
            result, error = None, None
            try:
                result = func(*args)
            except Exception as raised:
                error = raised
            self.call_soon(settle, result, error, context=context)

        self.threads.start(body)
        return future

    def call_soon_threadsafe(
        self, callback: Callable[[*A], object], *args: *A, context: Context | None = None
    ) -> asyncio.Handle:
        """Same as `call_soon`, because simulated threads run in this one."""
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*A], object], *args: *A, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call back at a virtual time; callbacks of equal time run in order."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._order += 1
        heapq.heappush(self._timers, (when, self._order, timer))
        return timer

    def call_later(
        self, delay: float, callback: Callable[[*A], object], *args: *A, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def call_soon(self, callback: Callable[[*A], object], *args: *A, context: Context | None = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not self.is_closed():
            self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def _run_once(self) -> None:
        ready, timers = self._ready, self._timers  # type: ignore[attr-defined]
        if not ready:
            while timers and timers[0][2]._cancelled:
                heapq.heappop(timers)
            if not timers:
                raise Stuck("everybody waits, and no timer is set")
            self.now = max(self.now, timers[0][0])
            if self.now > LONGEST_SECONDS:
                raise Stuck(f"not settled after {self.now:.0f} s")
        now = self.now
        while timers and timers[0][0] <= now:
            ready.append(heapq.heappop(timers)[2])
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            process = handle._context.get(CURRENT)
            if process is None or not (process.dead or process.paused):
                handle._run()
            elif not process.dead:
                process.held.append(handle)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers are ignored when due."""

    def _process_events(self, event_list: Any) -> None:
        """There are no sockets."""

    def _note_failure(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if (error := context.get("exception")) is not None:
            self.failures.append(error)
