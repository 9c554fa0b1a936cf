"""While the owner of a session or job is away, its reads are answered by a stand-by: here, or at another node."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest

from app.cluster.takeovers import FORWARDED, STANDBY
from app.sessions.cursors import cursor
from app.sessions.tokens import PageTokens
from tests.contract.api import tone
from tests.unit import asgi
from tests.unit.app.conftest import KEY, OPTIONS, House
from tests.unit.app.double import MemorySessions
from tests.unit.app.jobs.conftest import SOUND, Exchange
from tests.unit.app.jobs.double import MemoryJobs
from tests.unit.app.jobs.test_elsewhere import served
from tests.unit.app.sessions.sockets import opened
from tests.waiting import turn, until
from topics.errors import Unavailable
from topics.ports.jobs import JobView
from topics.ports.sessions import SessionView
from topics.sessions.records import Chunk, Sealed

AWAY = "http://127.0.0.1:9"
AS_OF_MS = 1_767_323_045_678
AS_OF = "2026-01-02T03:04:05.678Z"


class StandbySessions(MemorySessions):
    def view(self, session: str) -> SessionView | None:
        view = super().view(session)
        return None if view is None else msgspec.structs.replace(view, standby=True)


class StandbyJobs(MemoryJobs):
    def view(self, job: str) -> JobView | None:
        view = super().view(job)
        return None if view is None else msgspec.structs.replace(view, standby=True)


class Standby:
    """What a node stands by for, in memory."""

    def __init__(self) -> None:
        self.sessions: Any = StandbySessions()
        self.jobs: Any = StandbyJobs()
        self.others: list[str] = []
        self.behind = False

    async def as_of(self, id: str) -> int:
        if self.behind:
            raise Unavailable("it is behind")
        return AS_OF_MS

    def urls(self, id: str) -> Sequence[str]:
        return self.others


@pytest.fixture
def standby() -> Standby:
    return Standby()


@pytest.fixture
def node(standby: Standby, loop: asyncio.Runner) -> Iterator[House]:
    """A node whose neighbour, the owner of everything, is away."""
    house = House(standby=standby)
    yield house
    loop.run(house.app.state.forwarder.close())


async def stands_by(node: House, *standbys: Standby, windows: int = 3, ended: bool = False) -> tuple[str, str]:
    """Return a session and a job that stand-bys have, and whose owner is away for the node."""
    session, job = await opened(node), node.jobs.create(SOUND)
    await node.sessions.submit(session, Chunk("c", 0, tone(windows)))
    if ended:
        await node.sessions.submit(session, Sealed("s"))
    await until(
        lambda: node.sessions.sessions[session].head.finished is ended and node.sessions.sessions[session].scores
    )
    for one in standbys:
        one.sessions.sessions[session], one.jobs.jobs[job] = node.sessions.sessions[session], node.jobs.jobs[job]
    node.sessions.elsewhere[session] = node.jobs.elsewhere[job] = AWAY
    return session, job


async def read(node: House, path: str, **headers: str) -> Exchange:
    return await Exchange(node, path, **headers).end()


async def test_reads_are_answered_while_the_owner_is_away(node: House, standby: Standby) -> None:
    """Each answer says up to when it is known; a write is refused."""
    session, job = await stands_by(node, standby)
    path = f"/audio_sessions/{session}"
    for one in (f"{path}/status", f"{path}/results", f"/sense/api/v1{path}/status", f"/api/v1/jobs/{job}"):
        answer = await read(node, one, x_api_key=KEY)
        assert (answer.status, answer.headers["earshot-as-of"]) == (200, AS_OF), one
    for refused in (
        await Exchange(node, f"{path}/chunks/9", "PUT", b'{"data":"AAAA"}').end(),
        await Exchange(node, path, "DELETE").end(),
        await read(node, f"{path}/activity"),
        await read(node, f"/api/v1/jobs/{job}/audio", x_api_key=KEY),
    ):
        assert (refused.status, "earshot-as-of" in refused.headers) == (503, False), refused.path
    for port in node.sessions, node.jobs:
        port.elsewhere.clear()
    for one in (f"{path}/status", f"/api/v1/jobs/{job}"):
        answer = await read(node, one, x_api_key=KEY)
        assert (answer.status, "earshot-as-of" in answer.headers) == (200, False), "the owner is here"


async def test_only_an_end_ends_the_progress(node: House, standby: Standby) -> None:
    """The owner may have accepted more than the stand-by knows."""
    session, _ = await stands_by(node, standby)
    for path, member in (("status", b'"in_progress":true'), ("results", b'"has_more":true')):
        assert member in (await read(node, f"/audio_sessions/{session}/{path}")).body
    session, _ = await stands_by(node, standby, ended=True)
    status = (await read(node, f"/audio_sessions/{session}/status")).json["inference"]
    assert (status["in_progress"], "next_token" in status["page"]) == (False, False)


async def test_page_at_the_end_waits_for_less_than_a_second(node: House, standby: Standby) -> None:
    session, _ = await stands_by(node, standby)
    total = standby.sessions.view(session).head.windows
    answer = await read(node, f"/audio_sessions/{session}/status?offset={total}")
    assert answer.json["inference"]["page"]["count"] == 0


async def test_what_a_reader_names_must_be_there(node: House, standby: Standby) -> None:
    """It may have seen more at the owner: then only an owner answers."""
    session, job = await stands_by(node, standby)
    total = standby.sessions.view(session).head.windows
    revision = standby.jobs.view(job).head.revision
    tokens = PageTokens(OPTIONS.secret)
    for windows, status in ((total, 200), (total + 1, 503)):
        token, place = tokens.issue(session, windows, 5), cursor(session, windows, 0)
        for query in (f"offset={windows}", f"next_token={token}", f"after={place}"):
            answer = await read(node, f"/audio_sessions/{session}/status?{query}")
            assert (answer.status, "earshot-as-of" in answer.headers) == (status, status == 200), query
        answer = await read(node, f"/audio_sessions/{session}/results?offset={windows}")
        assert answer.status == status
        live = Exchange(node, f"/audio_sessions/{session}/live", last_event_id=place)
        events = Exchange(node, f"/audio_sessions/{session}/live?events=window&after={place}")
        known = str(revision + windows - total)
        stream = Exchange(node, f"/api/v1/jobs/{job}/stream", last_event_id=known)
        for following in (live, events, stream):
            while not following.status:
                await turn()
            assert (following.status, "earshot-as-of" in following.headers) == (status, status == 200), following.path
            following.hang_up.set()
            await following.end()


async def test_listener_is_told_when_there_is_an_owner_again(node: House, standby: Standby) -> None:
    session, _ = await stands_by(node, standby)
    live = Exchange(node, f"/audio_sessions/{session}/live", last_event_id="0")
    await live.until(lambda body: b"event: window" in body)
    assert live.headers["earshot-as-of"] == AS_OF
    standby.sessions.view = _moved
    standby.sessions.followers.wake(session, lost=True)
    await live.end()
    assert b"event: moved" in live.body


def _moved(session: str) -> SessionView:
    raise Unavailable("its owner is here")


async def test_what_a_stand_by_does_not_have_waits_for_an_owner(node: House, standby: Standby) -> None:
    session, job = await stands_by(node)
    for path in (f"/audio_sessions/{session}/status", f"/api/v1/jobs/{job}"):
        assert (await read(node, path, x_api_key=KEY)).status == 503, "it may be too new, or deleted"
    session, job = await stands_by(node, standby)
    standby.behind = True
    assert (await read(node, f"/audio_sessions/{session}/status")).status == 503


async def test_keys_hold_as_at_the_owner(standby: Standby) -> None:
    """No document is made for sessions that need a key."""
    node = House(msgspec.structs.replace(OPTIONS, sessions_need_key=True), standby=standby)
    session, job = await stands_by(node, standby)
    paths = f"/audio_sessions/{session}/status", f"/api/v1/jobs/{job}"

    async def statuses(key: str) -> list[int]:
        return [(await asgi.Exchange(node, path, x_api_key=key).end()).status for path in paths]

    assert (await statuses(KEY), await statuses("wrong")) == ([200, 200], [401, 401])
    node.revoke_keys()
    assert await statuses(KEY) == [401, 401]
    await node.app.state.forwarder.close()


async def test_partition_without_an_owner_is_read(node: House, standby: Standby) -> None:
    session, _ = await stands_by(node, standby)
    node.sessions.elsewhere.clear()
    node.sessions.moving.add(session)
    assert (await read(node, f"/audio_sessions/{session}/status")).headers["earshot-as-of"] == AS_OF


async def test_another_node_that_stands_by_is_asked(node: House, standby: Standby) -> None:
    """It answers at once, also that it cannot."""
    far = Standby()
    other = House(standby=far)
    session, job = await stands_by(node, far)
    other.sessions.elsewhere[session] = other.jobs.elsewhere[job] = AWAY
    async with served(other, node) as url:
        standby.others = [AWAY, url]
        for path in (f"/audio_sessions/{session}/status", f"/api/v1/jobs/{job}"):
            answer = await read(node, path, x_api_key=KEY)
            assert (answer.status, answer.headers["earshot-as-of"]) == (200, AS_OF)
        far.behind = True
        assert (await read(node, f"/audio_sessions/{session}/status")).status == 503
    assert not other.sessions.waiting


async def test_stand_by_that_owns_it_by_now_answers(house: House, standby: Standby) -> None:
    session = await opened(house)
    answer = await read(house, f"/audio_sessions/{session}/status", **{FORWARDED.decode(): STANDBY.decode()})
    assert (answer.status, "earshot-as-of" in answer.headers) == (200, False)
    house.sessions.moving.add(session)
    answer = await read(house, f"/audio_sessions/{session}/status", **{FORWARDED.decode(): STANDBY.decode()})
    assert (answer.status, house.sessions.waiting) == (503, 0), "it stands by for nothing"
