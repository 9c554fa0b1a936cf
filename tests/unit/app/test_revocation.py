"""A node that changes a key refuses it at once despite its cache, and ends its open streams."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Final

import httpx2
import pytest
from structlog.testing import capture_logs

from app import main
from app.cluster.forwarding import Forwarder
from app.http.replies import StreamReply
from app.identity.keys import STREAM_SECONDS, KeyRateLimiter
from infra.db.bootstrap import bootstrap
from infra.db.directory import SqlDirectory
from tests.contract.api import RAW
from tests.unit.app.jobs.conftest import SOUND, Exchange
from tests.unit.app.real_house import FORM, PROJECT_KEY, RealHouse, opened
from topics import apikeys
from topics.apikeys import KeyKind
from topics.errors import DirectoryDown
from topics.keys import new_id

ADMIN_KEY: Final = "the operator's own key"
ORG_KEY: Final = "eso_testtesttesttesttest"
OPERATOR: Final = {"Authorization": f"Bearer {ADMIN_KEY}"}


@pytest.fixture
def house(loop: asyncio.Runner, tmp_path: Path) -> Iterator[RealHouse]:
    """An edge that caches a verdict for an hour."""
    made = opened(tmp_path, key_cache_seconds=3600.0, admin_key=apikeys.digest(ADMIN_KEY), job_reads_need_key=True)
    house = loop.run(made.__aenter__())
    loop.run(bootstrap(house.database, 1, PROJECT_KEY, ORG_KEY))
    yield house
    loop.run(made.__aexit__(None, None, None))


def take_directory_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let look-ups of keys fail; other uses of the database succeed."""

    async def answer(directory: SqlDirectory, question: Coroutine[object, None, object], failure: str) -> None:
        question.close()
        raise DirectoryDown(failure)

    monkeypatch.setattr(SqlDirectory, "_answer", answer)


async def renewed(house: RealHouse) -> str:
    answer = await house.http.post("/api/v1/project/key", headers={"X-Api-Key": PROJECT_KEY})
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    key: str = answer.json()["key"]
    return key


async def rotated(house: RealHouse) -> None:
    assert await house.project(await renewed(house)) == 200


async def rotated_by_the_operator(house: RealHouse) -> None:
    assert (await house.http.post("/admin/v1/projects/demo/key", headers=OPERATOR)).status_code == 200


async def deleted(house: RealHouse) -> None:
    assert (await house.http.delete("/admin/v1/projects/demo", headers=OPERATOR)).status_code == 204


async def deleted_with_its_organization(house: RealHouse) -> None:
    assert (await house.http.delete("/admin/v1/organizations/demo", headers=OPERATOR)).status_code == 204


OTHERS: Final = (rotated_by_the_operator, deleted, deleted_with_its_organization)


@pytest.mark.parametrize(("revoke", "down"), [(rotated, False), (renewed, True), *product(OTHERS, (False, True))])
async def test_revocation_ends_key_session_tokens_links_and_streams(
    revoke: Callable[[RealHouse], Awaitable[object]], down: bool, house: RealHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the database fails just then. `end` does not wait as long as a stream that waits for its heartbeat."""
    for name in (
        "app.identity.keys.STREAM_SECONDS",
        "app.jobs.events.HEARTBEAT_SECONDS",
        "app.sessions.live.HEARTBEAT_SECONDS",
        "app.sessions.project_live.HEARTBEAT_SECONDS",
    ):
        monkeypatch.setattr(name, 100.0)
    principal = await SqlDirectory(house.database, timeout=60.0).project(PROJECT_KEY)
    assert principal is not None
    job = house.jobs.create(SOUND, project=principal.project, organization=principal.organization, keep_audio_ms=60_000)
    passed = (await house.passes())["project"]
    keys = (PROJECT_KEY, passed)
    link = (await house.http.post(f"/api/v1/jobs/{job}/audio", headers={"X-Api-Key": PROJECT_KEY})).json()["url"]
    assert [await house.project(key) for key in keys] == [200, 200]
    assert (await house.http.get(link)).status_code == 200
    if down:
        take_directory_down(monkeypatch)
    streams = [
        Exchange(house, path, x_api_key=key) for path in ("/api/v1/live", f"/api/v1/jobs/{job}/stream") for key in keys
    ]
    for stream in streams:
        await stream.until(bool)
    with capture_logs() as lines:
        await revoke(house)
        for stream in streams:
            await stream.end()
            assert not stream.whole, "it is cut off, so that a client asks again and learns why"
    cut_off = [line["reason"] for line in lines if line["event"] == "response cut off"]
    assert cut_off == ["Unauthorized('the key has ended')"] * 4
    assert [await house.project(key) for key in keys] == [401, 401]
    assert (await house.http.get(link)).status_code == 401
    again = [await house.http.post("/api/v1/project/key", headers={"X-Api-Key": key}) for key in keys]
    assert [answer.status_code for answer in again] == [401, 401]


@pytest.mark.slow
async def test_revocation_ends_forwarded_stream(house: RealHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other node caches its verdict longer, and may require no key at all."""

    async def endless() -> AsyncGenerator[bytes, None]:
        while True:
            yield b": still here\n\n"
            await asyncio.sleep(0.01)

    async def forward(*args: object, **options: object) -> StreamReply:
        return StreamReply(200, [(b"content-type", b"text/event-stream")], endless())

    monkeypatch.setattr(Forwarder, "forward", forward)
    job = new_id()
    house.jobs.elsewhere[job] = "http://far"
    mine, other = (Exchange(house, f"/api/v1/jobs/{job}/stream", x_api_key=key) for key in (PROJECT_KEY, "esp_nobodys"))
    for stream in (mine, other):
        await stream.until(bool)
    await asyncio.sleep(2 * STREAM_SECONDS)
    assert not mine.task.done()
    await rotated_by_the_operator(house)
    await mine.end()
    assert not mine.whole
    assert not other.task.done()
    await other.leave()


async def test_rotation_ends_organization_key(house: RealHouse) -> None:
    keys = (ORG_KEY, (await house.passes())["organization"])
    assert [await house.organization(key) for key in keys] == [200, 200]
    await house.http.post("/admin/v1/organizations/demo/key", headers=OPERATOR)
    assert [await house.organization(key) for key in keys] == [401, 401]
    assert await house.project(PROJECT_KEY) == 200


async def test_upload_is_rejected_if_key_is_revoked_during_upload(house: RealHouse) -> None:
    whole = httpx2.Request("POST", "http://earshot/api/v1/analyze_file", files=FORM, headers={"X-Api-Key": PROJECT_KEY})

    async def body() -> AsyncIterator[bytes]:
        yield whole.content[:-10]
        await rotated_by_the_operator(house)
        yield whole.content[-10:]

    whole.read()
    answer = await house.http.post(whole.url, content=body(), headers=whole.headers)
    assert answer.status_code == 401
    assert not house.jobs.jobs


async def test_cached_old_key_cannot_rotate_key(house: RealHouse) -> None:
    """Another node rotated the key: this one still accepts the old one, but does not let it create a new one."""
    assert await house.project(PROJECT_KEY) == 200
    fresh = await house.accounts.rotate_project_key("demo")
    assert await house.project(PROJECT_KEY) == 200
    answer = await house.http.post("/api/v1/project/key", headers={"X-Api-Key": PROJECT_KEY})
    assert answer.status_code == 401
    assert await house.project(fresh) == 200


async def test_sign_out_ends_only_own_session_tokens(house: RealHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, other = await house.passes(), await house.passes()
    stream = Exchange(house, "/api/v1/live", x_api_key=mine["project"])
    await stream.until(bool)
    take_directory_down(monkeypatch)
    for passes in ({"project": PROJECT_KEY, "organization": ORG_KEY}, mine, {"project": "x", "organization": None}):
        assert (await house.http.post("/dashboard/sign-out", json=passes)).status_code == 204
    await stream.end()
    monkeypatch.undo()
    assert await house.project(mine["project"]) == await house.organization(mine["organization"]) == 401
    for project, organization in ((PROJECT_KEY, ORG_KEY), (other["project"], other["organization"])):
        assert await house.project(project) == await house.organization(organization) == 200


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param([("X-Api-Key", PROJECT_KEY.upper())], id="another case"),
        pytest.param([("X-Api-Key", PROJECT_KEY[:-1])], id="cut"),
        pytest.param([("X-Api-Key", PROJECT_KEY + "0")], id="longer"),
        pytest.param([("X-Api-Key", apikeys.new(KeyKind.PROJECT))], id="well formed"),
        pytest.param([("X-Api-Key", apikeys.new(KeyKind.PROJECT)[:-1] + "!")], id="mistyped"),
        pytest.param([("X-Api-Key", ORG_KEY)], id="of an organization"),
        pytest.param([("X-Api-Key", ADMIN_KEY)], id="of the operator"),
        pytest.param([("X-Api-Key", apikeys.digest(PROJECT_KEY).hex())], id="its hash"),
        pytest.param([("X-Api-Key", "' OR 1=1 --")], id="SQL"),
        pytest.param([("X-Api-Key", "k\u00fc\u00ff" * 20)], id="not ASCII"),
        pytest.param([("X-Api-Key", "k" * 8000)], id="very long"),
        pytest.param([("Authorization", f"Bearer {PROJECT_KEY}")], id="in another header"),
        pytest.param([("Cookie", f"X-Api-Key={PROJECT_KEY}")], id="in a cookie"),
        pytest.param([("X-Api-Key", "a"), ("X-Api-Key", "b"), ("x_api_key", PROJECT_KEY)], id="two headers"),
    ],
)
async def test_wrong_keys_are_rejected(house: RealHouse, headers: list[tuple[str, str]]) -> None:
    """Neither the query nor the body can give the right one."""
    encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    named = dict.fromkeys(("key", "api_key", "X-Api-Key", "x-api-key"), PROJECT_KEY)
    body = {"type": "stream", "content_type": RAW, **named}
    for path in ("/audio_sessions/", "/sense/api/v1/audio_sessions/", "/api/v1/analyze", "/api/v1/analyze_file"):
        answer = await house.http.post(path, json=body, params=named, headers=encoded)
        assert answer.status_code == 401, path
        assert PROJECT_KEY not in answer.text


async def test_plan_change_applies_immediately(house: RealHouse) -> None:
    assert (await house.analyze(PROJECT_KEY)).status_code == 200
    await house.http.put("/admin/v1/projects/demo/plan", json={"free_seconds": 0}, headers=OPERATOR)
    assert (await house.analyze(PROJECT_KEY)).status_code == 402


async def test_operator_key_guesses_are_limited(
    house: RealHouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that stands still, because each tenth of a second allows another guess."""
    monkeypatch.setattr(main, "KeyRateLimiter", partial(KeyRateLimiter, later=lambda *_: None))
    async with opened(tmp_path, admin_key=apikeys.digest(ADMIN_KEY)) as still:
        statuses = [
            (await still.http.get("/admin/v1/projects", headers={"Authorization": f"Bearer guess {n}"})).status_code
            for n in range(200)
        ]
        assert statuses[0] == 401
        assert statuses[-1] == 503
        assert await still.project(PROJECT_KEY) == 200, "other keys have tries of their own"


async def test_job_id_depends_on_api_key(house: RealHouse) -> None:
    """The Idempotency-Key and the stored secret do not reveal the job's id."""
    keys = (PROJECT_KEY, PROJECT_KEY, (await house.passes())["project"])
    jobs = [(await house.analyze(key, **{"Idempotency-Key": "recording-1"})).json()["job_id"] for key in keys]
    assert jobs[0] == jobs[1] != jobs[2]
