"""Logs: one line per event from every origin, and no key or audio in any."""

import base64
import inspect
import io
import json
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
import structlog
from uvicorn.protocols.http import httptools_impl

from infra import logs
from infra.db.accounts import Accounts
from infra.db.database import Database
from infra.db.speakers import SqlSpeakerStore
from streams.clients.embeddings import EmbeddingModel
from streams.speakers.speaker_store import VoiceSample
from tests.garbage import uncollected
from topics import apikeys
from topics.apikeys import KeyKind
from topics.keys import new_id

KEY = apikeys.new(KeyKind.PROJECT)
CHOSEN = "a key that somebody chose"


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    stream = io.StringIO()
    with uncollected():  # Tasks that an earlier test lost would log their errors here.
        yield stream
    logging.captureWarnings(False)
    structlog.reset_defaults()
    root.handlers[:], root.level = before
    for room in logs.ROOMS:
        logging.getLogger(room).setLevel(logging.NOTSET)


def events(lines: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in lines.getvalue().splitlines()]


def test_event_is_one_json_line(lines: io.StringIO) -> None:
    logs.configure(stream=lines, node="http://10.0.0.1:8000")
    plain = {"session": "s1", "a": None, "b": True, "c": 1.5, "d": ["x", 2], "e": {"f": "g"}}
    structlog.get_logger("app.sessions").info("chunk accepted", **plain, h=ValueError("bad"))
    (event,) = events(lines)
    assert event.pop("timestamp")
    origin = {"node": "http://10.0.0.1:8000", "version": metadata.version("earshot-server"), "pid": os.getpid()}
    assert event == {
        "event": "chunk accepted",
        **plain,
        "h": "bad",
        "level": "info",
        "logger": "app.sessions",
        **origin,
    }


def test_refusals_do_not_flood_log(lines: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk refuses every request of every client; each kind is one line in some seconds."""
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    logs.configure(stream=lines)
    log = structlog.get_logger("app.http.operation")
    for number in range(60):
        for status, reason in (
            (503, f"no room for {number}"),
            (503, "the disk is full"),
            (404, f"there is no {number}"),
            (404, f"there is no {'x' * number}"),
        ):
            log.warning("request refused", operation="put_chunk", status=status, request=f"r{number}", reason=reason)
        log.info("socket closed", session=f"s{number}", code=4503, reason="full")
        log.info("session created", session=f"s{number}")
        log.error(
            "request failed", operation="put_chunk", status=500, exc_info=(ValueError if number % 2 else OSError)()
        )
    now += logs.REFUSAL_SECONDS
    log.warning("request refused", operation="put_chunk", status=503, request="last", reason="no room for 7")
    found = events(lines)
    assert sum(event["event"] == "session created" for event in found) == 60
    assert [
        (event["event"], event.get("status"), event.get("left_out")) for event in found if "created" not in str(event)
    ] == [
        ("request refused", 503, None),
        ("request refused", 503, None),
        ("request refused", 404, None),
        ("socket closed", None, None),
        ("request failed", 500, None),
        ("request failed", 500, None),
        ("request refused", 503, 59),
    ]


def test_lines_are_dropped_while_nobody_reads_them(lines: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "READER_SECONDS", 0.05)
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    monkeypatch.setattr(sys, "stderr", os.fdopen(writer, "w"))
    logs.configure()
    log = structlog.get_logger("app")
    log.info("long", number=-1, text="word " * 10_000)
    for number in range(1000):
        log.info("short", number=number)
    written = os.read(reader, 1 << 20)
    log.info("last", number=1000)
    long, *whole, last = (written + os.read(reader, 1 << 20)).splitlines()
    numbers = [json.loads(line)["number"] for line in whole if line.endswith(b"}")]
    assert len(long) > 50_000
    assert numbers == list(range(len(numbers))), "what came before the pipe was full"
    assert json.loads(last)["number"] == 1000
    assert len(whole) - len(numbers) <= 1, "at most the line that was cut"
    os.close(reader)
    sys.stderr.close()


def test_bound_context_is_on_every_event(lines: io.StringIO) -> None:
    logs.configure(stream=lines)
    with structlog.contextvars.bound_contextvars(request="r1"):
        structlog.get_logger("app").info("one")
        logging.getLogger("uvicorn.error").warning("two")
    assert [event["request"] for event in events(lines)] == ["r1", "r1"]


def test_deliberately_cut_response_is_not_logged_as_error(lines: io.StringIO) -> None:
    """For example when its key ends: the edge logs it."""
    logs.configure(stream=lines)
    server = logging.getLogger("uvicorn.error")
    for how in ("starting", "completing"):
        message = f"ASGI callable returned without {how} response."
        assert message in inspect.getsource(httptools_impl)
        server.error(message)
    assert [event["event"] for event in events(lines)] == ["ASGI callable returned without starting response."]


def test_unreachable_broker_does_not_flood_log(lines: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    logs.configure(stream=lines)
    library = logging.getLogger("aiokafka.client")

    def trouble(seconds: int) -> None:
        nonlocal now
        for _ in range(4 * seconds):
            library.error("Unable connect to node with id %s: %s", int(now), "refused")
            logging.getLogger("aiokafka.consumer").error("Group Coordinator Request failed: %s", "refused")
            now += 0.25

    trouble(10)
    library.error("Topic %s not found in cluster metadata", "t")
    assert [event["event"] for event in events(lines)] == [
        "Unable connect to node with id 1000: refused",
        "Group Coordinator Request failed: refused",
        "Topic t not found in cluster metadata",
    ]
    trouble(51)
    connects = [event["event"] for event in events(lines) if event["logger"] == "aiokafka.client"]
    assert connects[-1] == "Unable connect to node with id 1060: refused (239 more since the last such line)"
    assert len(events(lines)) == 5
    for ms in range(3):
        logging.getLogger("librdkafka").warning(f"FAIL: Connection refused (after {ms}ms in state CONNECT)")
    assert events(lines)[-1]["event"] == "FAIL: Connection refused (after 0ms in state CONNECT)"
    assert len(events(lines)) == 6
    for _ in range(3):
        logging.getLogger("httpx2").warning("each of these counts")
        structlog.get_logger("streams.kafka").warning("log.away")
    assert len(events(lines)) == 6 + 6


@pytest.mark.parametrize(("level", "count"), [("info", 2), ("debug", 3)])
def test_repeated_exception_is_logged_once_except_for_debugging(lines: io.StringIO, level: str, count: int) -> None:
    logs.configure(level, stream=lines)
    for error in (ValueError, KeyError, ValueError):
        try:
            raise error
        except Exception:
            logging.getLogger("aiokafka.conn").exception("Unexpected exception")
    assert len(events(lines)) == count


@pytest.mark.parametrize(
    ("level", "shown"),
    [
        ("debug", ["ours debug", "ours warning", "ours error", "theirs warning", "theirs error"]),
        ("info", ["ours warning", "ours error", "theirs warning", "theirs error"]),
        ("error", ["ours error", "theirs error"]),
    ],
)
def test_level_filters_messages(lines: io.StringIO, level: str, shown: list[str]) -> None:
    logs.configure(level, stream=lines)
    for logger, whose in (logging.getLogger("streams.sessions"), "ours"), (logging.getLogger("faust.app"), "theirs"):
        logger.debug("%s debug", whose)
        logger.warning("%s warning", whose)
        logger.error("%s error", whose)
    assert [event["event"] for event in events(lines)] == shown


def test_ids_in_paths_are_shortened(lines: io.StringIO) -> None:
    logs.configure("debug", stream=lines)
    job = "4bG4kCD3jAgwG3rLuU1AvCkY"
    logging.getLogger("httpx2").info("GET %s", f"http://node/api/v1/jobs/{job}/stream")
    structlog.get_logger("app").info("chunk", url=f"/audio_sessions/{job}/chunks/0")
    first, second = events(lines)
    assert first["event"] == "GET http://node/api/v1/jobs/4bG4kCD3…/stream"
    assert second["url"] == "/audio_sessions/4bG4kCD3…/chunks/0"


async def test_debug_level_shows_no_names_or_ids_from_the_database(lines: io.StringIO, tmp_path: Path) -> None:
    logs.configure("debug", stream=lines)
    database = Database(f"sqlite+aiosqlite:///{tmp_path / 'earshot.db'}")
    await database.migrate()
    organization = (await Accounts(database).create_organization("Zoo keepers"))[0].id
    voice = VoiceSample(new_id(), np.ones(4, np.float32), EmbeddingModel("mini", "ab" * 32), 4000, None)
    store = SqlSpeakerStore(database)
    await store.add(organization, "Anna_Kim", voice)
    await store.remove(organization, "Anna_Kim")
    await database.close()
    logging.getLogger("faust.app").error("record of %s failed", organization)
    written = lines.getvalue()
    assert events(lines)[-1]["event"] == f"record of {organization[:8]}… failed"
    for secret in "Anna_Kim", "Zoo keepers", organization, voice.id:
        assert secret not in written


def test_warnings_become_events(lines: io.StringIO) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logs.configure(stream=lines)
        warnings.warn("old call", stacklevel=1)
        logging.captureWarnings(False)
    assert "old call" in str(events(lines)[0]["event"])


def test_traceback_is_one_redacted_line(lines: io.StringIO) -> None:
    logs.configure(stream=lines)
    try:
        raise ValueError(f"cannot use {KEY}")
    except ValueError:
        structlog.get_logger("app").exception("failed")
        logging.getLogger("faust").exception("failed")
    for event in events(lines):
        assert "ValueError: cannot use esp_…" in str(event["exception"])
    assert len(events(lines)) == 2
    assert KEY not in lines.getvalue()


@pytest.mark.parametrize("form", ["json", "console"])
def test_keys_and_audio_are_redacted(lines: io.StringIO, form: str) -> None:
    audio = b"\x01\x02\x03" * 400
    logs.configure("debug", form, secrets=[CHOSEN], stream=lines)
    log = structlog.get_logger("app")
    log.info(f"key {KEY}", x_api_key="plain-secret", data=audio)
    log.info("headers", headers={"X-Api-Key": "plain-secret", b"x-org-key": b"plain-secret", "Host": "h"})
    log.info("headers", headers=[(b"x-api-key", b"plain-secret"), ("x-org-key", "plain-secret")])
    log.info("text", body=base64.b64encode(audio).decode(), chosen=f"with {CHOSEN}.", nested=[{"deep": (KEY, CHOSEN)}])
    logging.getLogger("h11").warning("got %r", [(b"x-api-key", b"plain-secret")])
    logging.getLogger("h11").warning("got %s", {"X-Org-Key": "plain-secret"})
    logging.getLogger("h11").warning("got x-api-key: plain-secret and %s", KEY)
    written = lines.getvalue()
    assert len(written.splitlines()) == 7
    for secret in KEY, CHOSEN, "plain-secret", base64.b64encode(audio).decode()[:300], r"\x01\x02":
        assert secret not in written
