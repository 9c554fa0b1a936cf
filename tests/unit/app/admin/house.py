"""The operator's interface over a real database in a file, without a socket."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from unittest import mock

import httpx2
import msgspec
import pytest
from starlette.applications import Starlette

from app.admin.nodes import NodeList
from app.cluster.forwarding import Forwarder
from app.http.metrics import Meters
from app.identity.changed_keys import ChangedKeys
from app.main import admin_routes
from infra.cli.admin_client import AdminClient
from infra.db.database import Database
from infra.db.ledger import SqlLedger
from infra.service.administration import SqlAdministration
from tests.contract.answers import watched
from topics import apikeys
from topics.ports.administration import LocalAdministration
from topics.ports.ledger import Charge, MeteredService
from topics.ports.nodes import Nodes

KEY = "the operator's own key"
URL = "http://elsewhere"
NOVEMBER = 1_793_491_200_000  # 2026-11-01T00:00:00Z


def interface(
    administration: LocalAdministration, meters: Meters, key: str | None = KEY, nodes: Nodes | None = None
) -> Starlette:
    listed = NodeList(nodes or mock.Mock(spec=Nodes), Forwarder(1.0), tuple)
    digest = None if key is None else apikeys.digest(key)
    return Starlette(routes=admin_routes(administration, listed, digest, meters, mock.Mock(spec=ChangedKeys)))


def database_at(directory: Path) -> str:
    """Return the URL of the database that commands use with this data directory."""
    return f"sqlite+aiosqlite:///{directory / 'earshot.db'}"


class Transport(httpx2.ASGITransport):
    """Simulates a service on another machine, with its own database connections."""

    def __init__(self, directory: Path) -> None:
        self._database = Database(database_at(directory))
        super().__init__(interface(SqlAdministration(self._database), Meters(tuple)))

    async def aclose(self) -> None:
        await self._database.close()
        await super().aclose()


class House(msgspec.Struct, frozen=True):
    accounts: SqlAdministration
    ledger: SqlLedger
    meters: Meters
    http: httpx2.AsyncClient
    client: AdminClient

    async def used(self) -> tuple[str, str]:
        """Write usage of a new project in a new organization; return their ids."""
        zoo, _ = await self.accounts.create_organization("Zoo")
        apes, _ = await self.accounts.create_project("apes", "Zoo")
        sound = Charge("j1", MeteredService.SOUND, apes.id, zoo.id, 61_001, "yamnet@1", NOVEMBER)
        speech = msgspec.structs.replace(sound, service=MeteredService.SPEECH, audio_ms=61_000, model="=cmd")
        await self.ledger.record([sound, speech, msgspec.structs.replace(sound, job="j2", at_ms=NOVEMBER - 1)])
        return zoo.id, apes.id


@asynccontextmanager
async def _house(directory: Path) -> AsyncIterator[House]:
    database = Database(database_at(directory))
    accounts, meters = SqlAdministration(database), Meters(tuple)
    transport = httpx2.ASGITransport(interface(accounts, meters))
    headers = {"Authorization": f"Bearer {KEY}"}
    async with (
        AsyncExitStack() as stack,
        watched(httpx2.AsyncClient(transport=transport, base_url=f"{URL}/admin/v1", headers=headers)) as http,
        AdminClient(URL, KEY, transport=transport) as client,
    ):
        stack.push_async_callback(database.close)
        await database.migrate()
        yield House(accounts, SqlLedger(database), meters, http, client)


@pytest.fixture
def house(loop: asyncio.Runner, tmp_path: Path) -> Iterator[House]:
    made = _house(tmp_path)
    yield loop.run(made.__aenter__())
    loop.run(made.__aexit__(None, None, None))
