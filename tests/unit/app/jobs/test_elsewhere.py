"""Jobs of another node: read, followed and removed through this one, streamed."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator

import msgspec
import pytest

from tests.unit.app.conftest import KEY, House
from tests.unit.app.jobs.conftest import SOUND, Exchange, sounds
from tests.unit.app.jobs.double import RECORDING
from tests.unit.app.sessions.sockets import listening
from tests.waiting import until
from topics import apikeys
from topics.apikeys import KeyKind
from topics.jobs.options import Service
from topics.ports.directory import AudioLink


@contextlib.asynccontextmanager
async def served(owner: House, asker: House) -> AsyncIterator[str]:
    """Serve a house on the running loop, until the other one has closed its connections to it."""
    async with listening(owner.app) as (server, _):
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        await asker.app.state.forwarder.close()


@pytest.fixture
def owner() -> House:
    return House()


@pytest.fixture
def url(loop: asyncio.Runner, house: House, owner: House) -> Iterator[str]:
    serving = served(owner, house)
    yield loop.run(serving.__aenter__())
    loop.run(serving.__aexit__(None, None, None))


def far_job(house: House, owner: House, url: str) -> str:
    job = owner.jobs.create(SOUND)
    house.jobs.elsewhere[job] = url
    return job


async def test_events_are_forwarded_immediately(house: House, owner: House, url: str) -> None:
    job = far_job(house, owner, url)
    exchange = Exchange(house, f"/api/v1/jobs/{job}/stream")
    await exchange.until(lambda body: b"event: progress" in body)
    for name, value in (
        ("content-type", "text/event-stream"), ("cache-control", "no-store"), ("x-accel-buffering", "no"),
    ):  # fmt: skip
        assert exchange.headers[name] == value
    assert "content-length" not in exchange.headers
    owner.jobs.perform(job, Service.SOUND, sounds("Siren"))
    await exchange.end()
    assert exchange.whole
    assert b"event: completed" in exchange.body
    resumed = await Exchange(house, f"/api/v1/jobs/{job}/stream", last_event_id="999999").end()
    assert resumed.body.startswith(b"event: partial_result"), "nonsense counts as nothing seen"
    late = await Exchange(
        house, f"/api/v1/jobs/{job}/stream", last_event_id=str(owner.jobs.jobs[job].head.revision)
    ).end()
    assert late.body.startswith(b"event: completed"), "Last-Event-ID is passed on"


async def test_recordings_and_pictures_are_forwarded(house: House, owner: House, url: str) -> None:
    source = msgspec.structs.replace(RECORDING, size=3 << 20)
    job = owner.jobs.create(SOUND, source, keep_audio_ms=60_000)
    house.jobs.elsewhere[job] = url
    whole = await Exchange(house, f"/api/v1/jobs/{job}/audio", x_api_key=KEY).end()
    assert (whole.status, len(whole.body), whole.whole) == (200, 3 << 20, True)
    assert whole.headers["content-length"] == str(3 << 20)
    part = await Exchange(house, f"/api/v1/jobs/{job}/audio", x_api_key=KEY, range="bytes=1-2").end()
    assert (part.status, part.body) == (206, b"ud")
    for name in ("content-range", "content-disposition", "x-content-type-options", "accept-ranges", "etag"):
        assert part.headers[name]
    token = apikeys.new(KeyKind.AUDIO)
    owner.directory.links[token] = AudioLink("project", "organization", job, 2**60)
    keyless = await Exchange(house, f"/api/v1/jobs/{job}/audio?token={token}", range="bytes=0-0").end()
    assert (keyless.status, keyless.body) == (206, b"a")
    picture = await Exchange(house, f"/api/v1/jobs/{job}/spectrogram?columns=5", x_api_key=KEY).end()
    assert (picture.status, picture.headers["earshot-seconds"]) == (200, "4.000")
    late = await Exchange(house, f"/api/v1/jobs/{job}/audio", x_api_key=KEY, range="bytes=9999999-").end()
    assert (late.status, late.headers["content-range"]) == (416, f"bytes */{3 << 20}")


async def test_disconnect_reaches_owner(house: House, owner: House, url: str) -> None:
    job = far_job(house, owner, url)
    exchange = Exchange(house, f"/api/v1/jobs/{job}/stream")
    await exchange.until(bool)
    assert len(owner.jobs.followers[job]) == 1
    await exchange.leave()
    await until(lambda: not owner.jobs.followers[job])


async def test_long_result_is_forwarded_and_partial_result_cut_off(house: House, owner: House, url: str) -> None:
    job = far_job(house, owner, url)
    portions = [sounds(*["Siren Knock"] * 500, first=500 * number) for number in range(10)]
    owner.jobs.perform(job, Service.SOUND, *portions)
    exchange = await Exchange(house, f"/api/v1/jobs/{job}", x_api_key=KEY).end()
    assert (exchange.status, exchange.headers["content-type"]) == (200, "application/json")
    windows = json.loads(exchange.body)["result"]["sound_event_detection"]["results"]
    assert len(windows) == 5000
    head = await Exchange(house, f"/api/v1/jobs/{job}", "HEAD", x_api_key=KEY).end()
    assert (head.status, head.body, head.whole) == (200, b"", True)
    del owner.jobs.jobs[job].portions[Service.SOUND, 7]
    cut = await Exchange(house, f"/api/v1/jobs/{job}", x_api_key=KEY).end()
    assert (len(cut.body) > 100_000, cut.whole) == (True, False)


async def test_rejections_and_removals_come_from_owner(house: House, owner: House, url: str) -> None:
    job = far_job(house, owner, url)
    path = f"/api/v1/jobs/{job}"
    for method, tail, key, status in (
        ("GET", "", "", 401),
        ("GET", "/captions.srt", "", 409),
        ("DELETE", "", KEY, 204),
        ("DELETE", "", KEY, 404),
        ("GET", "/stream", "", 404),
    ):
        exchange = await Exchange(house, path + tail, method, x_api_key=key).end()
        assert exchange.status == status
    assert exchange.body == b'{"error":"Not Found"}'
    once = await Exchange(house, path, x_api_key=KEY, x_earshot_forwarded="1").end()
    assert once.status == 503, "a request that was passed on is answered where it arrives"
