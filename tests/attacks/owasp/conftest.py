"""A service with two isolated organizations, and scripted engines."""

import socket
import threading
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pytest

from tests.contract.api import Api, tone, wav
from tests.contract.jobs import Jobs
from tests.ports import free_port
from tests.process import ADMIN_KEY, KEY, ORG_KEY, ServiceProcess, ask
from tests.stub_engines import StubEngines
from tests.waiting import wait_for

ENGINE_KEY: Final = "sk-key-of-the-speech-engine"


class Tenant(msgspec.Struct, frozen=True):
    """A user with an organization and a project."""

    key: str
    org_key: str


class Canary:
    """A port that nothing has a reason to connect to."""

    def __init__(self) -> None:
        self.visits = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.visits += 1
            connection.close()

    def close(self) -> None:
        self._socket.close()


class Target(msgspec.Struct):
    """The attacked service and its tenants."""

    service: ServiceProcess
    #: URL of the operator's interface.
    admin: str
    engines: StubEngines
    alice: Tenant
    mallory: Tenant
    #: URL of the client interface, and the key of Alice, whom drivers act for.
    url: str
    key: str = KEY

    def operate(self, method: str, path: str, **request: Any) -> Any:
        answer = ask(
            method, f"{self.admin}/admin/v1{path}", headers={"authorization": f"Bearer {ADMIN_KEY}"}, **request
        )
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def project(self, name: str, organization: str) -> str:
        return str(self.operate("POST", "/projects", json={"name": name, "organization": organization})["key"])

    def charged(self, project: str) -> Any:
        """Wait until the ledger, which follows the log, shows audio of a project; return its row."""
        return wait_for(lambda: next((row for row in self.operate("GET", "/usage") if row["project"] == project), None))

    def well(self) -> None:
        """Check that the service still serves."""
        assert self.service.running
        assert ask("GET", f"{self.url}/healthz").status_code == 200


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    port = free_port()
    with StubEngines() as engines:
        service = ServiceProcess(
            tmp_path_factory.mktemp("owasp") / "data",
            **engines.settings,
            admin_listen=f"127.0.0.1:{port}",
            speech_key=ENGINE_KEY,
            speech_timeout="5",
            caption_timeout="5",
            key_cache_seconds="1",
        )
        service.start()
        nobody = Tenant("", "")
        made = Target(service, f"http://127.0.0.1:{port}", engines, Tenant(KEY, ORG_KEY), nobody, service.url)
        org_key = made.operate("POST", "/organizations", json={"name": "Mallory"})["key"]
        made.mallory = Tenant(made.project("mine", "Mallory"), org_key)
        yield made
        assert service.stop() == 0, service.tail()
        log = service.log.read_text()
        assert "Traceback" not in log
        for secret in (KEY, ORG_KEY, ADMIN_KEY, ENGINE_KEY, org_key):
            assert secret not in log


@pytest.fixture
def api(target: Target) -> Iterator[Api]:
    with Api(target) as driver:
        yield driver


@pytest.fixture
def jobs(target: Target) -> Iterator[Jobs]:
    target.engines.heal()
    with Jobs(target) as driver:
        yield driver
    target.engines.heal()


@pytest.fixture
def canary() -> Iterator[Canary]:
    port = Canary()
    yield port
    port.close()


def recording(seconds: float = 1) -> bytes:
    return wav(tone(seconds))
