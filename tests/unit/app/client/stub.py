"""A small in-memory server of the session interface that loses answers and is busy on request."""

from base64 import b64decode
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, Protocol, TypeVar, cast

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tests.unit.app.conftest import behind_a_server

KEY = "a-key-of-the-stub"
#: The part of a recording that the client reads, and slightly more.
WAV = b"RIFF\x00\x00\x00\x00WAVEfmt " + bytes(1000)
PAGE = 2

#: Effect on the next chunk upload: 503 without effect, or success with the answer cut off.
Fault = Literal["busy", "lost"]
Windows = list[dict[str, float]]


class Stored(msgspec.Struct):
    """A session in the stub."""

    opening: dict[str, object]
    chunks: list[bytes] = []
    keys: list[str] = []
    readonly: bool = False


class Stub:
    """`heard` is the result of every session: tags and probabilities, window by window (1 s every 0.5 s)."""

    def __init__(self, heard: Windows) -> None:
        self.heard = heard
        self.error: str | None = None
        self.faults: deque[Fault] = deque()
        self.sessions: dict[str, Stored] = {}
        self.url = ""

    @property
    def only(self) -> Stored:
        (session,) = self.sessions.values()
        return session

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/audio_sessions/", self.create, methods=["POST"]),
                Route("/audio_sessions/{id}", self.update, methods=["PATCH"]),
                Route("/audio_sessions/{id}", self.delete, methods=["DELETE"]),
                Route("/audio_sessions/{id}/chunks/{number:int}", self.put, methods=["PUT"]),
                Route("/audio_sessions/{id}/status", self.status),
                Route("/tags/official", self.tags),
            ]
        )

    async def create(self, request: Request) -> Response:
        if request.headers.get("x-api-key") != KEY:
            return _error(401, "Invalid API key")
        opening = await request.json()
        name = f"session{len(self.sessions)}"
        self.sessions[name] = Stored(opening)
        return JSONResponse({"session_id": name, "chunk_sequence": 0, "window_size": 1, "window_hop": 0.5})

    async def put(self, request: Request) -> Response:
        session = self.sessions[request.path_params["id"]]
        key = request.headers["idempotency-key"]
        fault = self.faults.popleft() if self.faults else None
        if fault == "busy":
            return JSONResponse({"error": "queues are full", "status_code": 503}, 503, {"Retry-After": "0.01"})
        number = request.path_params["number"]
        if key not in session.keys:
            if session.readonly:
                return _error(403, "the session takes no more chunks")
            if number != len(session.chunks):
                return _error(409, f"the next chunk is {len(session.chunks)}")
            session.chunks.append(b64decode((await request.json())["data"]))
            session.keys.append(key)
            whole = sum(map(len, session.chunks)) >= cast(int, session.opening.get("total_size", 1 << 60))
            session.readonly = whole or self.error is not None
        return Cut() if fault == "lost" else JSONResponse({"session_id": "", "chunk_sequence": number + 1})

    async def update(self, request: Request) -> Response:
        self.sessions[request.path_params["id"]].readonly = (await request.json())["make_readonly"]
        return Response(status_code=204)

    async def delete(self, request: Request) -> Response:
        gone = self.sessions.pop(request.path_params["id"], None)
        return Response(status_code=204) if gone else _error(404, "the session does not exist or was deleted")

    async def status(self, request: Request) -> Response:
        session = self.sessions[request.path_params["id"]]
        streamed = session.opening["type"] == "stream"
        known = self.heard[: len(session.chunks)] if streamed else self.heard if session.readonly else []
        first = int(request.query_params.get("next_token", "0"))
        page: dict[str, object] = {"offset": first, "count": len(known[first : first + PAGE]), "total": len(known)}
        if not session.readonly or first + PAGE < len(known):
            page["next_token"] = str(min(first + PAGE, len(known)))
        results = [_event(first + n, tags) for n, tags in enumerate(known[first : first + PAGE])]
        body: dict[str, object] = {
            "state": "readonly" if session.readonly else "writable",
            "refs": {"session_id": request.path_params["id"], "chunk_sequence": len(session.chunks)},
            "inference": {"in_progress": not session.readonly, "page": page, "results": results},
        }
        return JSONResponse(body | ({"error": self.error} if self.error and session.readonly else {}))

    async def tags(self, request: Request) -> Response:
        return JSONResponse([{"id": "1", "name": "Dog_bark"}, {"id": "2", "name": "Speech"}])


class Cut(Response):
    """The start of an answer, then a closed connection."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"99")]})
        await send({"type": "http.response.body", "body": b"{", "more_body": False})


def _event(number: int, tags: dict[str, float]) -> dict[str, object]:
    named = [{"name": name, "probability": value} for name, value in (tags or {"Others": 0.0}).items()]
    return {"start_time": number / 2, "end_time": number / 2 + 1, "tags": named}


def _error(status: int, message: str) -> Response:
    return JSONResponse({"error": message, "status_code": status}, status)


class Serveable(Protocol):
    url: str

    def app(self) -> Starlette: ...


S = TypeVar("S", bound=Serveable)


@contextmanager
def serving(stub: S) -> Iterator[S]:
    """Serve a stub on a free port, in a thread, while the block runs."""
    with behind_a_server(stub.app()) as stub.url:
        yield stub
