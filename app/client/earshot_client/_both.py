"""The types of methods that both clients share, so that each method is written once.

A method returns what its connection returns. `Client`'s connection returns a value or an iterator; `AsyncClient`'s
returns a coroutine or an asynchronous iterator.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, cast, overload

from ._calls import Flow

if TYPE_CHECKING:
    from ._async_connection import AsyncConnection
    from ._async_socket import AsyncSocket
    from ._connection import Connection
    from ._event_stream import EventStream
    from ._socket import Socket

P = ParamSpec("P")
T = TypeVar("T")
B = TypeVar("B")
A = TypeVar("A")


class Result(Generic[T]):
    """A value, or for asyncio a coroutine that returns it."""


class Results(Generic[T]):
    """An iterator of values, or for asyncio an asynchronous one."""


class Sockets:
    """A `Socket`, or for asyncio an `AsyncSocket`."""


class Blocking:
    """Marks the blocking client for `both`."""


class OnLoop:
    """Marks the asyncio client for `both`."""


class Both(Generic[P, B, A]):
    """The type of a method of both clients."""

    @overload
    def __get__(self, client: Blocking, owner: type) -> Callable[P, B]: ...
    @overload
    def __get__(self, client: OnLoop, owner: type) -> Callable[P, A]: ...
    @overload
    def __get__(self, client: None, owner: type) -> Callable[..., Any]: ...
    def __get__(self, client: object, owner: type) -> Callable[..., Any]:
        raise NotImplementedError


@overload
def both(method: Callable[Concatenate[Any, P], Result[T]]) -> Both[P, T, Coroutine[Any, Any, T]]: ...
@overload
def both(method: Callable[Concatenate[Any, P], Sockets]) -> Both[P, Socket, AsyncSocket]: ...
@overload
def both(method: Callable[Concatenate[Any, P], Results[T]]) -> Both[P, Iterator[T], AsyncIterator[T]]: ...
def both(method: Any) -> Any:
    """Give a method the types of both clients."""
    return method


class Calls:
    """Shared helpers for the methods of both clients."""

    _connection: Connection | AsyncConnection
    _key: str
    _org_key: str

    def _run(self, flow: Flow[T], timeout: float | None) -> Result[T]:
        return cast("Result[T]", self._connection.run(flow, timeout))

    def _items(self, flow: Flow[None], timeout: float | None) -> Results[Any]:
        return cast("Results[Any]", self._connection.items(flow, timeout))

    def _server_events(self, stream: EventStream[T], timeout: float | None) -> Results[T]:
        return cast("Results[T]", self._connection.server_events(stream, timeout))
