"""Bounds of a project, an organization, an address and of all are for the machine, not for each lane."""

import socket
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, closing, suppress
from urllib.parse import urlencode

import httpx2
import pytest

from app.identity.keys import BURST
from tests.lanes.machine import PARTITIONS
from tests.process import KEY, ServiceProcess, ask
from tests.recovery.load import CONTENT_TYPE
from tests.unit.app.sessions.sockets import line_at
from tests.waiting import wait_for
from topics import apikeys
from topics.apikeys import KeyKind

SESSIONS = 10
ADDRESS = 40
UPLOADS = 3
ALL_UPLOADS = 8
SOCKETS = 6
TRIES = 1
#: Bounds without a setting, for processes that begin with this.
SMALLER = f"from app.sessions import socket_quota; socket_quota.PROJECT_SOCKETS = {SOCKETS}"

#: The beginning of an upload; the key is missing.
UPLOAD = (
    "POST /api/v1/analyze_file HTTP/1.1\r\nhost: x\r\nx-api-key: {}\r\ncontent-length: 100000\r\n"
    'content-type: multipart/form-data; boundary=b\r\n\r\n--b\r\ncontent-disposition: form-data; name="audio"; '
    'filename="a.wav"\r\n\r\n'
)

pytestmark = [pytest.mark.slow]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    data, code = tmp_path_factory.mktemp("lanes") / "data", tmp_path_factory.mktemp("code")
    (code / "sitecustomize.py").write_text(SMALLER)
    bounds = {
        "project_sessions": SESSIONS,
        "connections_per_address": ADDRESS,
        "project_uploads": UPLOADS,
        "uploads": ALL_UPLOADS,
        "key_tries": TRIES,
        "key_cache_seconds": 60,
    }
    process = ServiceProcess(data, lanes=3, partitions=PARTITIONS, **bounds)
    process.environment["PYTHONPATH"] = str(code)
    with process:
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


def refused_uploads(machine: ServiceProcess, keys: list[str], expected: int) -> None:
    """Begin an upload with each key, on a connection of its own, and wait until as many are refused as expected."""
    with ExitStack() as stack:
        clients = []
        for key in keys:
            client = stack.enter_context(socket.create_connection(("127.0.0.1", machine.port), 30))
            client.settimeout(0.2)
            client.sendall(UPLOAD.format(key).encode() + bytes(2000))
            clients.append(client)

        def refused() -> int:
            count = 0
            for client in clients:
                with suppress(TimeoutError):
                    count += client.recv(12, socket.MSG_PEEK) == b"HTTP/1.1 503"
            return count

        assert wait_for(lambda: refused() if refused() >= expected else None) == expected


def test_project_has_as_many_uploads_as_on_one_lane(machine: ServiceProcess) -> None:
    refused_uploads(machine, [KEY] * 3 * UPLOADS, 2 * UPLOADS)


def test_organization_has_as_many_uploads_as_on_one_lane(machine: ServiceProcess) -> None:
    """Half of all: each of its projects has fewer than a project may."""
    keys = [machine.project(f"uploading-{number}") for number in range(ALL_UPLOADS)]
    refused_uploads(machine, keys, ALL_UPLOADS // 2)


async def test_project_has_as_many_sockets_as_on_one_lane(machine: ServiceProcess) -> None:
    key, opened = machine.project("sockets"), Counter[str]()
    async with AsyncExitStack() as stack:
        for number in range(3 * SOCKETS):
            path = f"/api/v1/socket?{urlencode({'request_id': f'bounded-{number}', 'content_type': CONTENT_TYPE})}"
            line = await stack.enter_async_context(line_at(machine.url.replace("http", "ws", 1), path, x_api_key=key))
            opened[(await line.next())["type"]] += 1
    assert opened == {"hello": SOCKETS, "error": 2 * SOCKETS}


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


@pytest.mark.parametrize("command", [("key", "rotate", "renewed", "--yes"), ("project", "delete", "gone", "--yes")])
def test_key_that_another_process_ends_is_refused_by_all_lanes(
    machine: ServiceProcess, command: tuple[str, ...]
) -> None:
    """It tells nobody; verdicts are cached for a minute."""
    headers = {"X-Api-Key": machine.project(command[2])}

    def statuses() -> Counter[int]:
        return Counter(ask("GET", f"{machine.url}/audio_sessions/", headers=headers).status_code for _ in range(24))

    assert statuses() == {200: 24}
    machine.command(*command)
    wait_for(lambda: statuses() == {401: 24}, 30)


def test_deleted_project_is_gone_from_all_lanes(machine: ServiceProcess) -> None:
    """Its sessions are read without a key, each at the lane that has it."""
    body, headers = {"type": "stream", "content_type": CONTENT_TYPE}, {"X-Api-Key": machine.project("deleted")}
    created = [ask("POST", f"{machine.url}/audio_sessions/", json=body, headers=headers).json() for _ in range(8)]
    urls = [f"{machine.url}/audio_sessions/{one['session_id']}/status" for one in created]
    assert [ask("GET", url).status_code for url in urls] == [200] * 8
    machine.operate("DELETE", "/projects/deleted")
    wait_for(lambda: [ask("GET", url).status_code for url in urls] == [404] * 8)


def test_locked_database_refuses_writes_alone(machine: ServiceProcess) -> None:
    """Another program holds it: keys that were checked go on."""
    assert create(machine, KEY) == 200
    with closing(sqlite3.connect(machine.data / "earshot.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        refused = ask("POST", f"{machine.url}/api/v1/project/key", headers={"X-Api-Key": KEY})
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        assert create(machine, KEY) == 200
    assert "the database is locked by another program" in machine.log.read_text()


def test_address_has_as_many_tries_of_unknown_keys_as_on_one_lane(machine: ServiceProcess) -> None:
    """The last test: it leaves no tries to others."""
    url, began = f"{machine.url}/audio_sessions/", time.monotonic()
    statuses = Counter(
        httpx2.get(url, headers={"X-Api-Key": apikeys.new(KeyKind.PROJECT)}, timeout=60).status_code
        for _ in range(12 * BURST * TRIES)
    )
    assert 0 < statuses[401] <= (BURST + time.monotonic() - began) * TRIES
