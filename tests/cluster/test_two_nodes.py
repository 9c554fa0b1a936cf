"""Two nodes on one Kafka: each takes any request, and when one dies the other continues its sessions and jobs."""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, nullcontext, suppress
from typing import Any

import httpx2
import pytest
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from infra import models
from tests import sse
from tests.cluster.nodes import Pair, service_nodes
from tests.contract.api import tone, wav
from tests.cutter import proxied
from tests.process import ServiceProcess
from tests.recovery.load import Client, Stream, half_second
from tests.recovery.truth import expected_events
from tests.unit.app.sessions.sockets import END, Line, line_at, of_type
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SESSIONS = 8
CHUNKS = 6
JOBS = 6


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """The first is reached through a proxy that outlives it, so the end of its session is all that shows its death."""
    with service_nodes(tmp_path_factory.mktemp("nodes"), {}, {}) as (one, two), proxied(nullcontext(one)) as proxy:
        one.url = one.environment["EARSHOT_ADVERTISE"] = proxy.url
        yield one, two


class Listener:
    """Reads a project's live stream in the background."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []
        self.windows: defaultdict[str, set[int]] = defaultdict(set)

    async def read(self, service: ServiceProcess) -> None:
        async with (
            httpx2.AsyncClient(base_url=service.url, timeout=60) as http,
            http.stream("GET", "/api/v1/live", headers={"X-Api-Key": service.key}) as answer,
        ):
            name = ""
            async for line in answer.aiter_lines():
                field, _, value = line.partition(": ")
                if field == "event":
                    name = value
                elif field == "data":
                    data = json.loads(value)
                    self.events.append((name, data))
                    if name == "window":
                        self.windows[data["session_id"]].add(data["window"])

    def missing(self) -> list[int]:
        """Return how many partitions were missing, each time that this changed."""
        return [data["partitions"] for name, data in self.events if name == "missing"]

    async def until(self, condition: Callable[[], bool]) -> None:
        await until(condition, 60)


@asynccontextmanager
async def _listening(service: ServiceProcess) -> AsyncIterator[Listener]:
    listener = Listener()
    task = asyncio.create_task(listener.read(service))
    yield listener
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _put_all(client: Client, streams: list[Stream]) -> None:
    for seed, stream in enumerate(streams):
        await client.put(stream, seed)


async def _check(client: Client, streams: list[Stream]) -> None:
    for stream in streams:
        assert await client.events(stream.session) == expected_events(stream.chunks, models.directory("sed_mini"))


async def test_sessions_reach_owner_and_survive_its_death(nodes: Pair) -> None:
    """Uploads through both nodes; one dies; the other takes over; the first returns and serves again.

    A listener at the other hears all sessions, which partitions are missing meanwhile, and all windows after it.
    """
    one, two = nodes
    # A project whose list has these sessions alone.
    one.key = two.key = one.project("sessions")
    async with Client(one) as first, Client(two) as second:
        streams = [await (first if number % 2 else second).open() for number in range(SESSIONS)]
        ids = {stream.session for stream in streams}
        async with _listening(two) as heard:
            await heard.until(lambda: {data["session_id"] for name, data in heard.events if name == "session"} == ids)
            # Uploads alternate between the nodes, so half of them must be forwarded.
            for turn in range(CHUNKS):
                await _put_all(first if turn % 2 else second, streams)
            await heard.until(lambda: set(heard.windows) == ids and all(map({0, 1}.issubset, heard.windows.values())))
            assert all(data["session_id"] in ids for name, data in heard.events if name != "missing")
            for client in (first, second):
                listed, missing = await client.listed(3)
                assert (sorted(listed), missing) == (sorted(ids), None)
            before = len(two.log.read_text())
            one.kill()
            listed, missing = await second.listed(3)
            if missing is None:
                assert "node.ready" in two.log.read_text()[before:], "the partitions of a node that is away are missing"
            else:
                assert set(listed) < ids
            # The other node may have taken them over before the listener looks.
            await heard.until(lambda: any(heard.missing()) or "node.ready" in two.log.read_text()[before:])
            for _ in range(2):
                await _put_all(second, streams)
            assert sorted((await second.listed(3))[0]) == sorted(ids)
            # The chunks before its death complete at most this many windows.
            await heard.until(lambda: all(max(windows) >= CHUNKS - 1 for windows in heard.windows.values()))
            await heard.until(lambda: not any(heard.missing()[-1:]))
        for session, windows in heard.windows.items():
            assert windows == set(range(max(windows) + 1)), f"{session} has holes"
        for stream in streams:
            await second.seal(stream)
        await _check(second, streams)
        await asyncio.to_thread(one.start)
        await _check(first, streams)


async def _post(client: Client, number: int) -> str:
    """Post a job under a key that the other node may own."""
    return await client.job(wav(tone(5.0)), {"sound_event_detection": True}, f"job-{number}")


async def _completed(client: Client, job: str) -> int:
    """Follow a job on the event stream across nodes; return the number of windows in its result."""
    async with asyncio.timeout(client.give_up):
        while True:
            answer = await client.ask("GET", f"/api/v1/jobs/{job}/stream")
            assert answer.status_code == 200, answer.text
            for name, _, result in sse.events(answer.text.splitlines()):
                if name == "completed":
                    return len(result["sound_event_detection"]["results"])
            await asyncio.sleep(0.1)


async def test_jobs_are_accepted_anywhere_and_survive_node_death(nodes: Pair) -> None:
    """Posted to either node, repeated at the other, followed through a node that does not own them."""
    one, two = nodes
    async with Client(one) as first, Client(two) as second:
        early = [await _post(first if number % 2 else second, number) for number in range(JOBS)]
        # Each repeat goes to the other node.
        assert [await _post(second if number % 2 else first, number) for number in range(JOBS)] == early
        assert [await _completed(second, job) for job in early] == [4] * JOBS
        late = [await _post(first, number) for number in range(JOBS, 2 * JOBS)]
        one.kill()
        assert [await _completed(second, job) for job in (*early, *late)] == [4] * (2 * JOBS)


SENT = [half_second(1, number) for number in range(12)]


async def _gone_on_with(url: str, path: str) -> list[dict[str, Any]]:
    """Reconnect until the session has its new node, and send the rest."""
    async with asyncio.timeout(60):
        while True:
            with suppress(ConnectionClosed, InvalidHandshake, OSError):
                async with line_at(url, path) as line:
                    if (hello := await line.next())["type"] == "hello":
                        return await _rest(line, hello["next_chunk"])
            await asyncio.sleep(0.2)


async def _rest(line: Line, next_chunk: int) -> list[dict[str, Any]]:
    assert next_chunk == 6
    for chunk in SENT[next_chunk:]:
        await line.socket.send(chunk)
    await line.socket.send(END)
    messages = await line.rest()
    assert await line.code() == 1000
    return of_type(messages, "window")


async def test_socket_survives_death_of_session_owner(nodes: Pair) -> None:
    one, two = nodes
    async with Client(one) as first, Client(two) as second:
        stream = await first.open()
        path, url = f"/audio_sessions/{stream.session}/socket", two.url.replace("http", "ws", 1)
        async with line_at(url, f"{path}?after=start", x_api_key=two.key) as line:
            hello = await line.next()
            assert (hello["type"], hello["next_chunk"]) == ("hello", 0)
            for chunk in SENT[:6]:
                await line.socket.send(chunk)
            windows = [await line.next_of("window") for _ in range(5)]
            one.kill()
            # No more messages: the forwarding node tells the client to reconnect.
            assert await line.rest() == []
            assert await line.code() == 1001
        windows += await _gone_on_with(url, f"{path}?after={windows[-1]['cursor']}")
        assert [window["window"] for window in windows] == list(range(len(windows)))
        read = await second.events(stream.session)
        told = [{name: window[name] for name in ("start_time", "end_time", "tags")} for window in windows]
        assert told == read


async def test_alarms_of_all_nodes_are_listed_judged_and_tried_anywhere(nodes: Pair) -> None:
    one, two = nodes
    one.key = two.key = one.project("alarms")
    keyed = {"headers": {"X-Api-Key": one.key}}
    async with Client(one) as first, Client(two) as second, _listening(one) as heard:
        model, *_ = (await first.ask("GET", "/api/v1/models")).json()["models"]
        rule = {"name": "quiet", "when": "absent", "tags": [model["tags"][0]["name"]], "duration": 1}
        assert (await first.ask("POST", "/api/v1/alarm_rules", json=rule, **keyed)).status_code == 201
        await asyncio.sleep(4.0)  # The other node looks every second.
        streams = [await (first if number % 2 else second).open() for number in range(SESSIONS)]
        ids = {stream.session for stream in streams}
        for _ in range(CHUNKS):
            await _put_all(first, streams)
        # The listener hears of all of them by one node.
        await heard.until(lambda: {data["session_id"] for name, data in heard.events if name == "alarm"} == ids)
        for client in (first, second):
            page = (await client.ask("GET", "/api/v1/alarms", **keyed)).json()
            assert ({alarm["session_id"] for alarm in page["alarms"]}, page.get("missing")) == (ids, None)
            judged = [await client.ask("PATCH", f"/api/v1/alarms/{id}/0", json={"false": True}, **keyed) for id in ids]
            assert [answer.json()["false"] for answer in judged] == [True] * SESSIONS
            tried = (await client.ask("POST", "/api/v1/alarm_rules/test", json=rule, **keyed)).json()
            assert (tried["sessions"], tried["total"]) == (SESSIONS, SESSIONS)
        for stream in streams:
            await first.seal(stream)
