"""An edge over the in-memory ports: in process, or behind uvicorn."""

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from unittest import mock

import msgspec
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.testclient import TestClient
from starlette.types import ASGIApp

from app.admin.admin_bodies import NODE
from app.cluster import forwarding, lists, takeovers
from app.main import Ports, create_app
from app.options import EdgeOptions
from app.projects.project_bodies import MODELS
from infra.transport import tunnel
from tests.contract.answers import hold_answer, watched
from tests.unit import asgi
from tests.unit.app.alarms.double import MemoryAlarms
from tests.unit.app.double import MemoryDirectory, MemoryHealth, MemorySessions
from tests.unit.app.jobs.double import MemoryJobs, MemoryProber
from tests.unit.app.speakers.double import MemorySpeakers
from topics.ports.directory import Principal
from topics.ports.health import Reading
from topics.ports.models import Models
from topics.ports.nodes import Nodes
from topics.ports.own_sounds import OwnSoundStore
from topics.ports.projects import Projects
from topics.ports.sign_ins import SignIns

KEY = "a-key-of-the-double"
ORG_KEY = "an-organization-key-of-the-double"
OPTIONS = EdgeOptions(
    secret=b"s" * 32, spool=Path(tempfile.gettempdir()), poll_seconds=0.3, chunk_limit=2 * 1024 * 1024
)


class House:
    """An edge, and the ports behind it, which tests control; `real` ones replace them."""

    def __init__(self, options: EdgeOptions = OPTIONS, **real: Any) -> None:
        self.options = options
        self.sessions = MemorySessions()
        self.jobs = MemoryJobs()
        self.jobs.listeners = self.sessions.listeners
        self.prober = MemoryProber()
        self.speakers = MemorySpeakers()
        self.directory = MemoryDirectory({KEY: Principal("project", "organization")}, {ORG_KEY: "organization"})
        self.health = MemoryHealth()
        self.sign_ins = mock.Mock(spec=SignIns)
        self.own_sounds = mock.Mock(spec=OwnSoundStore)
        self.alarms = MemoryAlarms()
        self.projects = mock.Mock(spec=Projects)
        self.nodes = mock.Mock(spec=Nodes, elsewhere=list, facts=mock.AsyncMock(return_value=NODE))
        self.models = mock.Mock(spec=Models, in_use=lambda: MODELS.models)
        ports = Ports(
            sessions=self.sessions,
            jobs=self.jobs,
            directory=self.directory,
            prober=self.prober,
            speakers=self.speakers,
            projects=self.projects,
            sign_ins=self.sign_ins,
            own_sounds=self.own_sounds,
            alarms=self.alarms,
            alarm_settings=self.alarms,
            test_delivery=self.alarms,
            health=self.health,
            readings=lambda: [Reading("earshot_queue_bytes", "Bytes queued.", 7.0)],
            nodes=self.nodes,
            models=self.models,
        )
        self.app: Starlette = create_app(msgspec.structs.replace(ports, **real), options)

    def forget_keys(self) -> None:
        """Verify every key again at its next use."""
        for keyring in self.app.state.keyrings:
            keyring.forget(lambda holder: True)

    def revoke_keys(self) -> None:
        self.directory.keys.clear()
        self.forget_keys()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give nodes time to connect and to answer each other, because the machine may be busy."""
    for module in (forwarding, tunnel):
        monkeypatch.setattr(module, "CONNECT_SECONDS", 60.0)
    monkeypatch.setattr(lists, "PART_SECONDS", 60.0)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for no other owner: in these tests there is none."""
    monkeypatch.setattr(takeovers, "WAIT_SECONDS", 0.0)


@pytest.fixture
def house() -> House:
    return House()


@contextmanager
def client_of(house: House, **headers: str) -> Iterator[TestClient]:
    """An in-process client of an edge."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    with watched(TestClient(house.app, headers=given, raise_server_exceptions=False), house.options) as client:
        yield client
        assert client.portal is not None
        client.portal.call(house.app.state.forwarder.close)


@pytest.fixture
def http(house: House) -> Iterator[TestClient]:
    with client_of(house, x_api_key=KEY) as client:
        yield client


class Exchange(asgi.Exchange):
    """An exchange whose answer is checked against the document."""

    async def end(self) -> Self:
        await super().end()
        if self.status:
            body = self.body if self.whole else None
            hold_answer(self.method, self.path, self.status, self.headers, body)
        return self


class Running(msgspec.Struct, frozen=True):
    """A driver's settings for a service."""

    url: str
    key: str


@contextmanager
def behind_a_server(app: ASGIApp) -> Iterator[str]:
    """Serve an application by a real HTTP server; yield its URL."""
    config = uvicorn.Config(
        app,
        port=0,
        interface="asgi3",
        log_config=None,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=1,
        timeout_keep_alive=75,
        server_header=False,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        thread.join(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive()


@contextmanager
def serving(house: House) -> Iterator[Running]:
    with behind_a_server(house.app) as url:
        yield Running(url, KEY)


@pytest.fixture(scope="session")
def service() -> Iterator[Running]:
    with serving(House()) as running:
        yield running
