"""Webhooks and ntfy: what is sent, and the outcome of each answer and each failure."""

import asyncio
import base64
import email.utils
import json
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from streams.deliveries import http, messages
from streams.deliveries.addresses import Resolver
from streams.deliveries.http import MOST_ANSWER_BYTES, MOST_WAIT_SECONDS, Poster, verdict
from streams.deliveries.ntfy import Ntfy
from streams.deliveries.options import parse_networks
from streams.deliveries.outcome import Outcome
from streams.deliveries.webhook import Webhooks
from tests.unit.streams.clients.http_engine import Asked, HttpEngine, reply
from tests.unit.streams.deliveries.alarms import OLD_SECRET, SECRET, alarm, certified, destination
from topics.alarms.alarms import Alarm

HERE = parse_networks("127.0.0.0/8")


def poster(networks: Any = HERE) -> Poster:
    return Poster(Resolver(networks), connections=4)


def sent(receiver: HttpEngine, one: Alarm | None = None, path: str = "/in?x=1", **changes: Any) -> Outcome:
    """Return the outcome of an alarm sent to a receiver's webhook."""

    async def send(to: Poster) -> Outcome:
        return await Webhooks(to).send(destination(receiver.url + path, **changes), one or alarm())

    return receiver.serve(poster, send)


def notified(receiver: HttpEngine, one: Alarm | None = None, **changes: Any) -> Outcome:
    async def send(to: Poster) -> Outcome:
        return await Ntfy(to).send(destination(f"{receiver.url}/rings", kind="ntfy", **changes), one or alarm())

    return receiver.serve(poster, send)


def test_webhook_has_documented_body_and_headers() -> None:
    receiver = HttpEngine(reply(b"", 204))
    before = int(time.time())
    assert sent(receiver) == Outcome(status=204)
    [asked] = receiver.asked
    assert asked.path == "/in?x=1"
    assert asked.headers["webhook-id"] == alarm().id
    assert before <= int(asked.headers["webhook-timestamp"]) <= time.time()
    assert asked.headers["content-type"] == "application/json"
    assert len(asked.headers["webhook-signature"].split()) == 1
    assert b" " not in asked.body.replace(b"smoke alarm", b""), "it is minified"
    assert asked.json == {
        "type": "alarm",
        "timestamp": "2026-05-28T20:26:44.000Z",
        "data": {
            "id": alarm().id,
            "rule": {"id": "rule-1", "name": "smoke alarm"},
            "what": "heard",
            "source": "Küche",
            "labels": {"floor": "2"},
            "begins_at": "2026-05-28T20:26:40.000Z",
            "ends_at": "2026-05-28T20:26:43.000Z",
            "told_by_client": True,
            "tags": [{"name": "Smoke_detector", "probability": 0.9312}],
            "level": -21.4,
            "reason": None,
            "session": "Zm9vYmFy",
            "sequence": 3,
            "left_out": 2,
        },
    }


def test_attempts_have_one_id_and_a_time_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = HttpEngine(reply(b""))
    for now in (1_780_000_000, 1_780_000_300):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        sent(receiver)
    one, two = receiver.asked
    assert one.body == two.body
    assert one.headers["webhook-id"] == two.headers["webhook-id"]
    assert [int(asked.headers["webhook-timestamp"]) for asked in (one, two)] == [1_780_000_000, 1_780_000_300]
    assert one.headers["webhook-signature"] != two.headers["webhook-signature"]


def test_each_secret_signs_the_newest_first() -> None:
    receiver = HttpEngine(reply(b""))
    sent(receiver, secrets=(SECRET, OLD_SECRET))
    sent(receiver, secrets=(OLD_SECRET,))
    both, old = (asked.headers["webhook-signature"].split() for asked in receiver.asked)
    assert len(both) == 2
    assert all(one.startswith("v1,") and len(base64.b64decode(one[3:])) == 32 for one in both)
    assert both[0] != both[1]
    assert len(old) == 1


def test_long_labels_are_left_out() -> None:
    receiver = HttpEngine(reply(b""))
    many = {f"{number}": "\x01" * 250 for number in range(16)}
    sent(receiver, alarm(labels=many, tags=tuple((f"{'Tag' * 20}_{number}", 0.5) for number in range(64))))
    [asked] = receiver.asked
    assert len(asked.body) < messages.MOST_BYTES
    assert asked.json["data"]["labels"] == {}
    assert len(asked.json["data"]["tags"]) == 64


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, Outcome(status=200)),
        (299, Outcome(status=299)),
        (302, Outcome("it answered 302: redirects are not followed", 302)),
        (400, Outcome("it answered 400", 400)),
        (410, Outcome("it answered 410: it wants no alarms any more", 410, gone=True)),
        (429, Outcome("it answered 429", 429, away=True)),
        (500, Outcome("it answered 500", 500)),
        (502, Outcome("it answered 502", 502, away=True)),
        (504, Outcome("it answered 504", 504, away=True)),
    ],
)
def test_answer_decides_outcome(status: int, outcome: Outcome) -> None:
    head = "location: http://169.254.169.254/\r\n" if status == 302 else ""
    receiver = HttpEngine(reply(b"", status, head=head))
    assert sent(receiver) == outcome == verdict(status)
    assert len(receiver.asked) == 1


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("120", 120, 120),
        ("99999999", MOST_WAIT_SECONDS, MOST_WAIT_SECONDS),
        ("-5", 0, 0),
        ("soon", 0, 0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0, 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", MOST_WAIT_SECONDS, MOST_WAIT_SECONDS),
    ],
)
def test_retry_after_is_honoured_up_to_an_hour(text: str, least: float, most: float) -> None:
    receiver = HttpEngine(reply(b"", 503, head=f"Retry-After: {text}\r\n"))
    assert least <= sent(receiver).wait_s <= most


def test_retry_after_may_be_a_date() -> None:
    later = email.utils.formatdate(time.time() + 600, usegmt=True)
    assert 500 < sent(HttpEngine(reply(b"", 503, head=f"Retry-After: {later}\r\n"))).wait_s <= 600


def answering(serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> Outcome:
    """Return the outcome of an alarm sent to a server of raw bytes."""

    async def scene() -> Outcome:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await serve(reader, writer)
            except (ConnectionError, asyncio.IncompleteReadError):
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        async with server:
            to = poster()
            port = server.sockets[0].getsockname()[1]
            outcome = await Webhooks(to).send(destination(f"http://127.0.0.1:{port}/"), alarm())
            await to.close()
            return outcome

    return asyncio.run(scene())


def test_large_answer_is_cut_off() -> None:
    written = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10000000\r\n\r\n")
        while written < 10_000_000:
            writer.write(bytes(50_000))
            await writer.drain()
            written += 50_000

    assert answering(flood) == Outcome(status=200)
    assert written < 10_000_000, "what the kernel holds besides"
    assert MOST_ANSWER_BYTES == 65_536


def test_answer_of_a_byte_a_second_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "BODY_SECONDS", 0.1)

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 500 X\r\ncontent-length: 1000\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.05)

    assert answering(drip) == Outcome("it answered 500", 500)


def test_header_of_a_byte_a_second_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "ATTEMPT_SECONDS", 0.3)

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nx: ")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.05)

    assert answering(drip) == Outcome("it did not answer within 0.3 s", away=True)


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 200 OK\r\nx: " + bytes(200_000)])
def test_server_of_another_kind_is_named(answer: bytes) -> None:
    asked = 0

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        await reader.readuntil(b"\r\n\r\n")
        asked += 1
        writer.write(answer)
        await writer.drain()

    assert answering(speak) == Outcome("the connection ended without an answer by HTTP", away=True)
    assert asked == 2, "it may have been an idle connection that the server closed"


@pytest.mark.parametrize(
    ("url", "outcome"),
    [
        ("http://10.0.0.1/", "10.0.0.1 has no public address, and deliveries go to public addresses only"),
        ("http://[::1]:80/", "::1 has no public address, and deliveries go to public addresses only"),
        ("http://169.254.169.254/latest/meta-data/", "169.254.169.254 has no public address, and deliveries"),
        ("http://no-such-host.invalid/", "there is no host no-such-host.invalid"),
        ("ftp://8.8.8.8/", "its URL, user or password cannot be sent"),
        ("http://8.8.8.8:99999/", "its URL, user or password cannot be sent"),
        ("//", "its URL, user or password cannot be sent"),
    ],
)
async def test_unusable_url_is_named(url: str, outcome: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    to = poster(())
    failed = await Webhooks(to).send(destination(url), alarm())
    assert failed.error is not None
    assert failed.error.startswith(outcome)
    await to.close()


async def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    to = poster()
    failed = await Webhooks(to).send(destination(f"http://127.0.0.1:{port}/"), alarm())
    assert failed == Outcome("no connection: All connection attempts failed", away=True)
    await to.close()


async def test_certificate_must_be_of_the_host_of_the_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection goes to an address, but TLS and the Host header have the name."""
    certificate, context = await asyncio.to_thread(certified, tmp_path, "hook.example")
    heads = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 204 X\r\n\r\n")
        await writer.drain()
        writer.close()

    async def here(self: object, host: str) -> list[str]:
        return ["127.0.0.1"]

    monkeypatch.setattr(Resolver, "addresses", here)
    trusted = ssl.create_default_context(cafile=certificate)
    monkeypatch.setattr(http, "tls", lambda: trusted)
    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        to = poster()
        send = Webhooks(to).send
        assert await send(destination(f"https://hook.example:{port}/"), alarm()) == Outcome(status=204)
        other = await send(destination(f"https://other.example:{port}/"), alarm())
        await to.close()
    assert f"Host: hook.example:{port}".encode() in heads[0]
    assert other.error is not None
    assert "certificate is not valid for 'other.example'" in other.error
    assert len(heads) == 1


async def test_bad_secret_is_named_without_it() -> None:
    to = poster()
    failed = await Webhooks(to).send(destination("http://127.0.0.1/", secrets=("whsec_???",)), alarm())
    assert failed == Outcome("the secret of a webhook is not base64")


def test_ntfy_gets_its_fields() -> None:
    receiver = HttpEngine(reply({"id": "x"}))
    assert notified(receiver, options={"click": "https://earshot.example/"}, password="tk_secret") == Outcome(
        status=200
    )
    [asked] = receiver.asked
    assert asked.path == "/"
    assert asked.headers["authorization"] == "Bearer tk_secret"
    assert asked.json == {
        "topic": "rings",
        "title": "smoke alarm: Küche",
        "message": "Smoke_detector 93%, -21 dBFS, 2 more left out before, 2026-05-28T20:26:40.000Z",
        "priority": 4,
        "tags": ["loudspeaker"],
        "sequence_id": alarm().id,
        "click": "https://earshot.example/",
    }


@pytest.mark.parametrize(("given", "priority"), [("5", 5), ("1", 1), ("6", 4), ("x", 4)])
def test_ntfy_priority_and_user(given: str, priority: int) -> None:
    receiver = HttpEngine(reply({"id": "x"}))
    lost = alarm(what="source.lost", tags=(), level=None, left_out=0, reason="it sent nothing for 60 s", source=None)
    notified(receiver, lost, options={"priority": given}, user="ann", password="päss")
    [asked] = receiver.asked
    assert base64.b64decode(asked.headers["authorization"].removeprefix("Basic ")).decode() == "ann:päss"
    body = json.loads(asked.body)
    assert body["priority"] == priority
    assert (body["title"], body["tags"]) == ("smoke alarm", ["electric_plug"])
    assert body["message"] == "source.lost, it sent nothing for 60 s, 2026-05-28T20:26:40.000Z"


def test_webhook_may_have_a_password_too() -> None:
    receiver = HttpEngine(reply(b""))
    sent(receiver, user="ann", password="päss")
    sent(receiver, password="token")
    both, token = (asked.headers["authorization"] for asked in receiver.asked)
    assert base64.b64decode(both.removeprefix("Basic ")).decode() == "ann:päss"
    assert token == "Bearer token"


def test_connection_is_used_again() -> None:
    receiver = HttpEngine(lambda asked: reply(b""))

    async def send(to: Poster) -> list[Outcome]:
        hook = destination(receiver.url)
        return [await Webhooks(to).send(hook, alarm(sequence=number)) for number in range(3)]

    assert receiver.serve(poster, send) == [Outcome(status=200)] * 3
    assert len(receiver.asked) == 3


def test_password_that_no_header_can_carry() -> None:
    receiver = HttpEngine(lambda asked: reply(b""))
    assert notified(receiver, password="a\nb").error == "its URL, user or password cannot be sent"
    assert receiver.asked == list[Asked]()
