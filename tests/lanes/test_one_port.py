"""Lanes look like one service: requests, sockets, lists and metrics; connections go to the lane of their session."""

import asyncio
import base64
import json
from collections.abc import Iterator
from urllib.parse import urlencode

import httpx2
import pytest

from tests.lanes.machine import PARTITIONS, lane_processes, metric
from tests.process import KEY, ServiceProcess
from tests.recovery.load import CONTENT_TYPE, Client, half_second
from tests.recovery.truth import stream_and_compare
from tests.unit.app.sessions.sockets import END, line_at

HEADERS = {"X-Api-Key": KEY}

pytestmark = [pytest.mark.slow]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    data = tmp_path_factory.mktemp("lanes") / "data"
    with ServiceProcess(data, lanes=2, partitions=PARTITIONS) as process:
        yield process


def created(machine: ServiceProcess) -> str:
    body = {"type": "stream", "content_type": CONTENT_TYPE, "default_sensitivity": -2}
    return str(
        httpx2.post(f"{machine.url}/audio_sessions/", json=body, headers=HEADERS, timeout=60).json()["session_id"]
    )


async def test_streams_of_all_lanes_equal_the_truth(machine: ServiceProcess) -> None:
    async with Client(machine) as client:
        streams = [await stream_and_compare(client, seed) for seed in range(6)]
        listed, missing = await client.listed(2)
    assert {stream.session for stream in streams} <= set(listed)
    assert (missing, len(lane_processes(machine))) == (None, 2)


def test_connection_goes_to_the_lane_of_its_session(machine: ServiceProcess) -> None:
    """Whichever lane accepts it, and however much of a request is there: nothing is forwarded."""
    sessions = [created(machine) for _ in range(8)]
    given, forwarded = (
        metric(machine, "earshot_connections_given_total"),
        metric(machine, "earshot_requests_forwarded_total"),
    )
    for session in sessions:
        url = f"{machine.url}/audio_sessions/{session}"
        for _ in range(2):  # Each on a connection of its own.
            assert httpx2.get(f"{url}/status", timeout=60).status_code == 200
        with httpx2.Client(timeout=60) as client:
            for number in range(3):
                # More than a message between lanes holds.
                audio = base64.b64encode(half_second(number, number) * 10).decode()
                answer = client.put(f"{url}/chunks/{number}", json={"data": audio})
                assert (answer.status_code, answer.json()["chunk_sequence"]) == (200, number + 1)
    assert metric(machine, "earshot_requests_forwarded_total") == forwarded
    assert metric(machine, "earshot_connections_given_total") > given


def test_connection_with_many_sessions_goes_to_the_lane_of_each(machine: ServiceProcess) -> None:
    """As that of a reverse proxy: nothing is forwarded."""
    sessions = [created(machine) for _ in range(8)]
    given, forwarded = (
        metric(machine, "earshot_connections_given_total"),
        metric(machine, "earshot_requests_forwarded_total"),
    )
    with httpx2.Client(timeout=60) as client:
        for number in range(3):
            for session in sessions:
                audio = base64.b64encode(half_second(number, number)).decode()
                url = f"{machine.url}/audio_sessions/{session}/chunks/{number}"
                assert client.put(url, json={"data": audio}).json()["chunk_sequence"] == number + 1
    assert metric(machine, "earshot_requests_forwarded_total") == forwarded
    assert metric(machine, "earshot_connections_given_total") > given


async def test_socket_opens_on_the_lane_of_its_derived_session(machine: ServiceProcess) -> None:
    forwarded = metric(machine, "earshot_requests_forwarded_total")
    given = metric(machine, "earshot_connections_given_total")
    for number in range(8):
        path = f"/api/v1/socket?{urlencode({'request_id': f'socket-of-lanes-{number}', 'content_type': CONTENT_TYPE})}"
        async with line_at(machine.url.replace("http", "ws", 1), path, x_api_key=KEY) as line:
            await line.next_of("hello")
            await line.socket.send(half_second(number, 0))
            await line.socket.send(END)
            await line.next_of("end")
    assert metric(machine, "earshot_requests_forwarded_total") == forwarded
    assert metric(machine, "earshot_connections_given_total") > given


async def test_impatient_sockets_are_handed_over_whole(machine: ServiceProcess) -> None:
    """They send audio before the answer to their handshake, which another lane gives."""
    given = metric(machine, "earshot_connections_given_total")
    audio = [half_second(9, number) for number in range(6)]
    messages = b"".join(b"\x82\xfe" + len(one).to_bytes(2, "big") + bytes(4) + one for one in audio)
    head = (
        f"GET /audio_sessions/{{}}/socket HTTP/1.1\r\nHost: x\r\nX-Api-Key: {KEY}\r\nConnection: Upgrade\r\n"
        "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )

    async def stream(session: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", machine.port)
        writer.write(head.format(session).encode())
        writer.write(messages)
        async with asyncio.timeout(60):
            while b'"next_chunk":6' not in (line := await reader.readuntil(b"}")):
                assert b'"error"' not in line
        writer.close()

    await asyncio.gather(*(stream(created(machine)) for _ in range(16)))
    assert metric(machine, "earshot_connections_given_total") > given


def test_operator_sees_each_lane_once(machine: ServiceProcess) -> None:
    report = machine.operate("GET", "/nodes")
    nodes = [one["node"] for one in report["nodes"]]
    assert (report["missing"], len(nodes)) == ([], 2)
    assert sorted(part["number"] for node in nodes for part in node["partitions"]) == list(range(PARTITIONS))


def test_log_has_the_lane_in_each_line(machine: ServiceProcess) -> None:
    lines = [json.loads(line) for line in machine.log.read_text().splitlines() if line.startswith("{")]
    assert {line.get("lane") for line in lines if line["event"] == "node.ready"} == {0, 1}
