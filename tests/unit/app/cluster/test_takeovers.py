"""Requests about a session or job whose partition moves wait for its new owner, whatever they ask for."""

import asyncio
from typing import Any
from unittest import mock
from urllib.parse import quote

import msgspec
import pytest

from app.cluster import takeovers
from app.cluster.takeovers import FULL, PROJECT_WAITING, Takeovers
from app.http.bodies import BodyQuota
from app.http.call import Call
from tests.contract.api import RAW
from tests.unit.app.conftest import KEY, House
from tests.unit.app.jobs.conftest import SOUND, Exchange
from tests.unit.app.jobs.test_acceptance import body as job_body
from tests.unit.app.jobs.test_elsewhere import owner, url
from tests.unit.app.sessions.sockets import opened, path_of, place
from tests.waiting import until
from topics.errors import Unavailable
from topics.turns import Holder

__all__ = ["owner", "url"]

CHUNK = b'{"data":"AAAAAAAAAAA="}'
AWAY = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeovers, "WAIT_SECONDS", 60.0)


def moved(house: House, *ids: str) -> None:
    """The partitions have moved here, if they have not moved elsewhere."""
    for port in house.sessions, house.jobs:
        port.moving.difference_update(ids)
        port.changed.set()


async def requests(house: House, session: str, job: str) -> list[Exchange]:
    """Begin requests of all kinds, which find that both are moving."""
    house.sessions.moving.add(session)
    house.jobs.moving.add(job)
    path = f"/audio_sessions/{session}"
    begun = [
        Exchange(house, f"{path}/chunks/0", "PUT", CHUNK),
        Exchange(house, f"{path}/status"),
        Exchange(house, f"{path}/live"),
        Exchange(house, f"/api/v1/jobs/{job}/stream"),
        Exchange(house, f"/api/v1/jobs/{job}", x_api_key=KEY),
    ]
    await until(lambda: house.sessions.waiting + house.jobs.waiting == len(begun))
    return begun


async def answered(begun: list[Exchange]) -> None:
    await until(lambda: all(exchange.status for exchange in begun))
    assert [exchange.status for exchange in begun] == [200] * len(begun)
    for exchange in begun:
        exchange.hang_up.set()
        await exchange.end()


async def test_requests_wait_for_takeover_here(house: House) -> None:
    session, job = await opened(house), house.jobs.create(SOUND)
    begun = await requests(house, session, job)
    moved(house, session, job)
    await answered(begun)


async def test_requests_wait_for_owner_elsewhere(house: House, owner: House, url: str) -> None:
    session, job = await opened(owner), owner.jobs.create(SOUND)
    begun = await requests(house, session, job)
    house.sessions.elsewhere[session] = house.jobs.elsewhere[job] = url
    moved(house, session, job)
    await answered(begun)


async def test_forwarded_requests_wait_for_their_partition(house: House, owner: House, url: str) -> None:
    """The forwarding node has heard first that the partition has moved here: the former owner is still known here."""
    session = await opened(owner)
    house.sessions.elsewhere[session], owner.sessions.elsewhere[session] = url, AWAY
    exchange = Exchange(house, f"/audio_sessions/{session}/status")
    await until(lambda: owner.sessions.waiting)
    del owner.sessions.elsewhere[session]
    moved(owner)
    await answered([exchange])


async def test_next_owner_is_asked_if_one_is_away(house: House, owner: House, url: str) -> None:
    """Its partitions move; what it has certainly not got goes to the node that has them then."""
    session = await opened(owner)
    house.sessions.elsewhere[session] = AWAY
    put = Exchange(house, f"/audio_sessions/{session}/chunks/0", "PUT", CHUNK)
    read = Exchange(house, f"/audio_sessions/{session}/status")
    await until(lambda: house.sessions.waiting == 2)
    house.sessions.elsewhere[session] = url
    moved(house)
    await answered([put, read])


async def test_node_with_newer_plan_forwards_what_was_forwarded_to_it(house: House, owner: House, url: str) -> None:
    """Others may still have the plan of before. A request by the same plan waits, as this node becomes the owner."""
    session = await opened(owner)
    house.sessions.elsewhere[session], house.sessions.version = url, b"0000000002"
    marks = [{"x_earshot_forwarded": mark} for mark in ("0000000001", "0000000002", "1")]
    older, same, foreign = (Exchange(house, f"/audio_sessions/{session}/status", **mark) for mark in marks)
    await answered([older])
    await until(lambda: house.sessions.waiting == 2)
    del house.sessions.elsewhere[session]
    moved(house)
    assert [(await one.end()).status for one in (same, foreign)] == [404, 404], "they are answered here"


async def test_sockets_wait_for_owner(house: House) -> None:
    session = await opened(house)
    house.sessions.moving.add(session)

    async def greeting() -> None:
        async with here.line(path_of(session)) as line:
            assert (await line.next())["type"] == "hello"

    async with place(house) as here, asyncio.TaskGroup() as clients:
        clients.create_task(greeting())
        await until(lambda: house.sessions.waiting)
        moved(house, session)


async def test_wait_ends(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeovers, "WAIT_SECONDS", 0.05)
    session = await opened(house)
    house.sessions.elsewhere[session] = AWAY
    refused = await Exchange(house, f"/audio_sessions/{session}/status").end()
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    assert "does not answer" in refused.body.decode()
    await house.app.state.forwarder.close()


async def test_waiting_requests_are_limited_per_project() -> None:
    sender = Holder("organization", "project")
    waiting, ids = Takeovers(lambda scope: sender), mock.Mock(owner=lambda id: None, is_moving=lambda id: True)
    ids.owner_changed, ignored = asyncio.Event().wait, mock.AsyncMock()

    def ask() -> Any:
        call = Call({"headers": []}, ignored, BodyQuota(0))
        return asyncio.create_task(waiting.ask(call, ids, "id", ignored))

    crowd = [ask() for _ in range(PROJECT_WAITING)]
    with pytest.raises(Unavailable, match=FULL) as refused:
        await ask()
    assert refused.value.retry_after == 1
    crowd[0].cancel()
    await asyncio.wait(crowd[:1])
    sender = Holder("organization", "another project")
    crowd += [ask(), ask()]
    done, _ = await asyncio.wait(crowd[1:], timeout=0.05)
    assert not done
    for task in crowd:
        task.cancel()


async def test_node_that_leaves_forwards_requests_for_new_ones(house: House, owner: House, url: str) -> None:
    house.sessions.other = house.jobs.other = url
    body = msgspec.json.encode({"content_type": RAW, "type": "stream"})
    made = await Exchange(house, "/audio_sessions/", "POST", body, x_api_key=KEY).end()
    assert msgspec.json.decode(made.body)["session_id"] in owner.sessions.sessions
    accepted = await Exchange(house, "/api/v1/analyze", "POST", msgspec.json.encode(job_body()), x_api_key=KEY).end()
    assert list(owner.jobs.jobs) == [msgspec.json.decode(accepted.body)["job_id"]]
    async with place(house) as here, place(owner) as there:
        house.sessions.other = there.url.replace("ws", "http")
        async with here.greeted(f"/api/v1/socket?content_type={quote(RAW)}", x_api_key=KEY):
            assert len(owner.sessions.sessions) == 2
    assert not house.sessions.sessions
    again = await Exchange(house, "/audio_sessions/", "POST", body, x_api_key=KEY, x_earshot_forwarded="1").end()
    assert again.status == 200, "it is forwarded once"
