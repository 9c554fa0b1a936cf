"""Answers over a socket: whole ones in one write, and others as they are made."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvicorn

from infra.service.http_protocol import PairingTransport, WholeAnswers


class Wire(asyncio.Transport):
    """Notes what is written, each system call by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[bytes] = []
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closed
        self.calls.append(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


def written(*writes: bytes, close: bool = False) -> list[bytes]:
    """Return the system calls of writes in one turn of the loop."""

    async def scene() -> list[bytes]:
        wire = Wire()
        transport = PairingTransport(wire, asyncio.get_running_loop())
        for data in writes:
            transport.write(data)
        if close:
            transport.close()
        assert transport.is_closing() is close
        await asyncio.sleep(0)
        return wire.calls

    return asyncio.run(scene())


@pytest.mark.parametrize("close", [False, True])
@pytest.mark.parametrize(
    ("writes", "calls"),
    [
        ([], []),
        ([b"head"], [b"head"]),
        ([b"head", b"body"], [b"headbody"]),
        ([b"head", b""], [b"head"]),
        ([b"", b"head", b"body"], [b"headbody"]),
        ([b"1", b"2", b"3"], [b"12", b"3"]),
    ],
)
def test_writes_are_passed_on_in_pairs(writes: list[bytes], calls: list[bytes], close: bool) -> None:
    assert written(*writes, close=close) == calls


async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answer with a body, without one, or piece by piece."""
    headers = [(b"content-length", b"2")] if scope["path"] == "/whole" else []
    await send({"type": "http.response.start", "status": 204 if scope["path"] == "/none" else 200, "headers": headers})
    if scope["path"] == "/pieces":
        for piece in (b"a", b"b"):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            await asyncio.sleep(0.01)
    await send({"type": "http.response.body", "body": b"ok" if scope["path"] == "/whole" else b""})


@pytest.mark.parametrize(
    ("method", "path", "end"),
    [
        ("GET", "/whole", b"\r\n\r\nok"),
        ("HEAD", "/whole", b"\r\n\r\n"),
        ("GET", "/none", b"\r\n\r\n"),
        ("GET", "/pieces", b"\r\n\r\n1\r\na\r\n1\r\nb\r\n0\r\n\r\n"),
    ],
)
def test_every_kind_of_answer_arrives_whole(method: str, path: str, end: bytes) -> None:
    async def scene() -> bytes:
        config = uvicorn.Config(application, port=0, http=WholeAnswers, ws="none", lifespan="off", log_config=None)
        server = uvicorn.Server(config)
        config.load()
        server.lifespan = config.lifespan_class(config)
        await server.startup()
        reader, writer = await asyncio.open_connection(*server.servers[0].sockets[0].getsockname())
        writer.write(f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        answer = await asyncio.wait_for(reader.read(), 5)
        writer.close()
        await server.shutdown()
        return answer

    answer = asyncio.run(scene())
    assert answer.endswith(end)
    assert answer.count(b"HTTP/1.1") == 1
