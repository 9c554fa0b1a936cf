"""The stack's own parts: records, the table that readers wait for, handlers, and the state of a session."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pybase64
import pytest
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.testclient import TestClient

from benchmarks import __main__ as program
from benchmarks import audio
from benchmarks.stack.ingress import Ingress
from benchmarks.stack.records import decode, encode
from benchmarks.stack.table import Stream, WindowTable, wait_for_window


class StubProducer:
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, bytes]] = []

    async def send_and_wait(self, topic: str, value: bytes, key: bytes, partition: int) -> None:
        """Keep a record."""
        self.sent.append((key, value))


def test_a_result_record_returns_as_it_was() -> None:
    assert decode(encode(7, [b"{}", b'{"a":1}'])) == (7, [b"{}", b'{"a":1}'])


def test_a_reader_wakes_when_its_window_comes(tmp_path: Path) -> None:
    async def scene() -> bytes:
        table = WindowTable(tmp_path)
        stream = table.streams[b"s"] = Stream(b"s", 0)
        asyncio.get_running_loop().call_later(
            0.01, table.put, [(b"s", encode(0, [b"zero"])), (b"other", encode(0, []))]
        )
        asyncio.get_running_loop().call_later(0.02, table.put, [(b"s", encode(1, [b"one", b"two"]))])
        await wait_for_window(stream, 1, 5.0)
        found = table.events(stream, 0, stream.windows)
        table.close()
        return found

    assert asyncio.run(scene()) == b"zero,one,two"


def test_the_handlers_speak_what_the_load_speaks(tmp_path: Path) -> None:
    producer, table = StubProducer(), WindowTable(tmp_path)
    ingress = Ingress(producer, table, 4)
    routes = [
        Route("/audio_sessions/", ingress.create, methods=["POST"]),
        Route("/audio_sessions/{session}/chunks/{sequence}", ingress.upload, methods=["PUT"]),
        Route("/audio_sessions/{session}/status", ingress.status),
    ]
    with TestClient(Starlette(routes=routes)) as client:
        session = client.post("/audio_sessions/").json()["session_id"]
        path, body = f"/audio_sessions/{session}", audio.body(0, 0)
        assert client.put(f"{path}/chunks/0", content=body).json()["chunk_sequence"] == 1
        assert client.put(f"{path}/chunks/2", content=body).status_code == 409
        assert client.put("/audio_sessions/unknown/chunks/0", content=body).status_code == 404
        table.put([(session.encode(), encode(0, [b'{"n":0}', b'{"n":1}']))])
        page = client.get(f"{path}/status?offset=1").json()["inference"]
    assert producer.sent == [(session.encode(), pybase64.b64decode(orjson.loads(body)["data"]))]
    assert (page["page"]["count"], page["page"]["next_token"], page["results"]) == (1, "2", [{"n": 1}])
    table.close()


def test_a_case_without_its_packages_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(program, "find_spec", lambda package: None)
    assert list(program.present(["windows", "stack"])) == ["windows"]
    assert "stack is left out: this needs the package bytewax" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        program.arguments(["stack"])
    assert "make extra NAME=bench" in capsys.readouterr().err
