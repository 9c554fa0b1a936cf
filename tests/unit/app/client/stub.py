"""The service's edge that loses answers and is busy on request, and what the other stubs share."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, Protocol, TypeVar

from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.unit.app.conftest import House, behind_a_server
from tests.unit.app.double import Session

#: What the stubs take for a recording.
WAV = b"RIFF\x00\x00\x00\x00WAVEfmt " + bytes(1000)

#: Effect on the next upload: 503 without effect, or success with the answer cut off.
Fault = Literal["busy", "lost"]


class Stub:
    """The edge of a house; `faults` affect the next uploads of chunks."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.faults: deque[Fault] = deque()
        self.url = ""

    @property
    def only(self) -> Session:
        (session,) = self.house.sessions.sessions.values()
        return session

    def app(self) -> ASGIApp:
        return self._answer

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        fault = self.faults.popleft() if self.faults and scope["method"] == "PUT" else None
        if fault == "busy":
            busy = JSONResponse({"error": "queues are full", "status_code": 503}, 503, {"Retry-After": "0.01"})
            await busy(scope, receive, send)
        elif fault == "lost":
            await self.house.app(scope, receive, _lose)
            await Cut()(scope, receive, send)
        else:
            await self.house.app(scope, receive, send)


async def _lose(message: Message) -> None: ...


class Cut(Response):
    """The start of an answer, then a closed connection."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"99")]})
        await send({"type": "http.response.body", "body": b"{", "more_body": False})


class Serveable(Protocol):
    url: str

    def app(self) -> ASGIApp: ...


S = TypeVar("S", bound=Serveable)


@contextmanager
def serving(stub: S) -> Iterator[S]:
    """Serve a stub on a free port, in a thread, while the block runs."""
    with behind_a_server(stub.app()) as stub.url:
        yield stub
