"""Turns in the work of this node: in the time of the event loop, and in places for long work beside it."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import islice
from time import perf_counter
from typing import Any, Final, Generic, ParamSpec, Protocol, Self, TypeVar

from app.http.addresses import customer
from topics.turns import Holder, Shares

P = ParamSpec("P")
T = TypeVar("T")

#: Seconds of customers' work in one iteration of the event loop, and of one item of it that can be divided.
ITERATION_SECONDS: Final = 0.001
SLICE_SECONDS: Final = 0.0005


class Owned(Protocol):
    """A project's key, session or job."""

    @property
    def organization(self) -> str: ...
    @property
    def project(self) -> str: ...


def holder_of(owned: Owned, subject: str = "") -> Holder:
    """Return the holder of work for a project, perhaps on one of its sessions or jobs."""
    return Holder(owned.organization, owned.project, subject)


def stranger(address: str) -> Holder:
    """Return the holder of work for a client that has shown neither a key nor the id of a session or job."""
    return Holder("", customer(address))


class LoopTurns:
    """Shares the time of the event loop among organizations, then projects, then sessions and jobs. Loop only.

    Whatever a request can make the loop do is put here, or charged here. An iteration of the loop begins no more of it
    than `ITERATION_SECONDS` allow; longer work makes the following iterations begin none.
    """

    def __init__(self) -> None:
        self._shares: Shares[tuple[Holder, Callable[[], None]]] = Shares()
        #: Seconds charged, less those of the iterations since then.
        self._debt = 0.0
        self._scheduled = False

    def is_free(self) -> bool:
        """Return whether work may be done now; its time must then be `spent` and charged. Otherwise `put` it."""
        return not self._shares and self._debt < ITERATION_SECONDS

    def put(self, holder: Holder, work: Callable[[], None]) -> None:
        """Call `work`, which must not raise, when it is the holder's turn; charge the time that it takes."""
        self._shares.put(holder, (holder, work))
        if not self._scheduled:
            self._schedule()

    def do(self, holder: Holder, work: Callable[[], None]) -> None:
        """Call `work`, which must not raise, now if it may be done, else when it is the holder's turn; charge it."""
        if not self.is_free():
            self.put(holder, work)
            return
        begun = perf_counter()
        work()
        seconds = perf_counter() - begun
        self.spend(seconds)
        self._shares.charge(holder, seconds)

    def spend(self, seconds: float) -> None:
        """Let the following iterations begin less, because this one has done so much; or more, if it is negative."""
        debt = self._debt + seconds
        self._debt = debt if debt > 0.0 else 0.0
        if not self._scheduled:
            self._schedule()

    def charge(self, holder: Holder, seconds: float) -> None:
        """Count time of the loop that a holder has used."""
        self._shares.charge(holder, seconds)

    async def run(self, holder: Holder, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of a function that is called at the holder's turn; its errors pass through."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.put(holder, partial(_resolve, done, partial(function, *args, **kwargs)))
        return await done

    async def each(self, holder: Holder, items: Iterable[T]) -> AsyncGenerator[T, None]:
        """Yield items, each of which is made at a turn of its own."""
        iterator = iter(items)
        while taken := await self.run(holder, _first_of, iterator):
            yield taken[0]

    def _schedule(self) -> None:
        self._scheduled = True
        asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self._scheduled = False
        self._debt = max(0.0, self._debt - ITERATION_SECONDS)
        while self._debt < ITERATION_SECONDS and (taken := self._shares.take()) is not None:
            holder, work = taken
            begun = perf_counter()
            work()
            seconds = perf_counter() - begun
            self._debt += seconds
            self._shares.charge(holder, seconds)
        if (self._shares or self._debt) and not self._scheduled:
            self._schedule()


def _first_of(items: Iterator[T]) -> list[T]:
    return list(islice(items, 1))


def _resolve(done: asyncio.Future[T], function: Callable[[], T]) -> None:
    if done.done():  # The caller was cancelled.
        return
    try:
        done.set_result(function())
    except BaseException as error:
        done.set_exception(error)


class Measured(Generic[T]):
    """Awaits something in steps, and passes on the seconds of the event loop that each of them takes."""

    __slots__ = ("_steps", "_took")

    def __init__(self, steps: Generator[Any, None, T], took: Callable[[float], None]) -> None:
        self._steps = steps
        self._took = took

    def __await__(self) -> Generator[Any, None, T]:
        return self  # type: ignore[return-value]  # It has what `await` calls.

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        begun = perf_counter()
        try:
            return next(self._steps)
        finally:
            self._took(perf_counter() - begun)

    def throw(self, *error: Any) -> Any:
        begun = perf_counter()
        try:
            return self._steps.throw(*error)
        finally:
            self._took(perf_counter() - begun)

    def close(self) -> None:
        self._steps.close()


class LongWork:
    """A few places for work that takes long. Holders take turns by the time for which they have had one. Loop only."""

    def __init__(self, number: int) -> None:
        self._free = number
        self._waiting: Shares[asyncio.Future[None]] = Shares()

    @asynccontextmanager
    async def place(self, holder: Holder) -> AsyncIterator[None]:
        """Wait for a place, and hold it."""
        if self._free:
            self._free -= 1
        else:
            await self._turn(holder)
        begun = perf_counter()
        try:
            yield
        finally:
            self._waiting.charge(holder, perf_counter() - begun)
            self._pass_on()

    async def _turn(self, holder: Holder) -> None:
        given = asyncio.get_running_loop().create_future()
        self._waiting.put(holder, given)
        try:
            await given
        except asyncio.CancelledError:
            if given.done() and not given.cancelled():
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        while (next_one := self._waiting.take()) is not None:
            if not next_one.done():
                next_one.set_result(None)
                return
        self._free += 1
