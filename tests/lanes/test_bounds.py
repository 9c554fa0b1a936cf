"""Bounds of a project and an address are for the machine, not for each lane; and so is the end of a key."""

import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import httpx2
import pytest

from tests.lanes.machine import PARTITIONS
from tests.process import KEY, ServiceProcess
from tests.recovery.load import CONTENT_TYPE
from tests.waiting import wait_for

SESSIONS = 10
ADDRESS = 40
UPLOADS = 3

pytestmark = [pytest.mark.slow]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    data = tmp_path_factory.mktemp("lanes") / "data"
    bounds = {
        "project_sessions": SESSIONS,
        "connections_per_address": ADDRESS,
        "project_uploads": UPLOADS,
        "key_cache_seconds": 60,
    }
    with ServiceProcess(data, lanes=3, partitions=PARTITIONS, **bounds) as process:
        yield process


def create(machine: ServiceProcess, key: str) -> int:
    """Create a session on a connection of its own, which any lane may accept; return the status."""
    body = {"type": "stream", "content_type": CONTENT_TYPE}
    headers = {"X-Api-Key": key}
    return httpx2.post(f"{machine.url}/audio_sessions/", json=body, headers=headers, timeout=60).status_code


def test_project_has_as_many_sessions_as_on_one_lane(machine: ServiceProcess) -> None:
    key = machine.project("full")
    assert Counter(create(machine, key) for _ in range(3 * SESSIONS)) == {200: SESSIONS, 503: 2 * SESSIONS}
    assert create(machine, KEY) == 200, "another project has its own"


def test_address_has_as_many_connections_as_on_one_lane(machine: ServiceProcess) -> None:
    host, port = "127.0.0.1", machine.port
    with ExitStack() as stack:
        answers: Counter[bytes] = Counter()
        for _ in range(2 * ADDRESS):
            client = stack.enter_context(socket.create_connection((host, port), 30))
            client.settimeout(30)
            client.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            answers[client.recv(12)] += 1
    assert answers == {b"HTTP/1.1 200": ADDRESS, b"HTTP/1.1 503": ADDRESS}


def test_project_has_as_many_uploads_as_on_one_lane(machine: ServiceProcess) -> None:
    head = (
        f"POST /api/v1/analyze_file HTTP/1.1\r\nhost: x\r\nx-api-key: {KEY}\r\ncontent-length: 100000\r\n"
        'content-type: multipart/form-data; boundary=b\r\n\r\n--b\r\ncontent-disposition: form-data; name="audio"; '
        'filename="a.wav"\r\n\r\n'
    )
    with ExitStack() as stack:
        clients = []
        for _ in range(3 * UPLOADS):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", machine.port), 30))
            client.settimeout(0.2)
            client.sendall(head.encode() + bytes(2000))
            clients.append(client)

        def refused() -> int:
            count = 0
            for client in clients:
                with suppress(TimeoutError):
                    count += client.recv(12, socket.MSG_PEEK) == b"HTTP/1.1 503"
            return count

        assert wait_for(lambda: refused() if refused() >= 2 * UPLOADS else None) == 2 * UPLOADS


def test_rotated_key_ends_on_all_lanes_at_once(machine: ServiceProcess) -> None:
    old = machine.project("rotated")
    url = f"{machine.url}/audio_sessions/"

    def statuses(key: str) -> Counter[int]:
        asked = (httpx2.get(url, headers={"X-Api-Key": key}, timeout=60).status_code for _ in range(24))
        return Counter(asked)

    assert statuses(old) == {200: 24}
    new = machine.operate("POST", "/projects/rotated/key")["key"]
    assert statuses(old) == {401: 24}
    assert statuses(new) == {200: 24}
