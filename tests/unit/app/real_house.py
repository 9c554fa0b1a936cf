"""An edge with real accounts, over a database in a file, without a socket."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx2
import msgspec

from app.identity.keys import Keyring
from infra.db.accounts import Accounts
from infra.db.database import Database
from infra.db.directory import SqlDirectory
from infra.db.ledger import SqlLedger
from infra.db.projects import SqlProjects
from infra.service.administration import SqlAdministration
from infra.service.links import OneTimeLinks
from tests.contract.answers import watched
from tests.unit.app.conftest import OPTIONS, House
from tests.unit.infra.conftest import migrated
from topics.ports.directory import Principal

PROJECT_KEY: Final = "esp_testtesttesttesttest"
FORM: Final[Any] = {"options": (None, '{"sound_event_detection":true}'), "audio": ("a.wav", b"audio", "audio/wav")}


class RealHouse(House):
    def __init__(self, database: Database, clock: Callable[[], float], **options: Any) -> None:
        self.database = database
        self.accounts = Accounts(database, clock)
        self.sql_projects = SqlProjects(database, clock)
        self.ledger = SqlLedger(database)
        self.links = OneTimeLinks(database)
        super().__init__(
            msgspec.structs.replace(OPTIONS, **options),
            directory=SqlDirectory(database, timeout=60.0),
            projects=self.sql_projects,
            sign_ins=self.links,
            administration=SqlAdministration(database),
        )
        transport = httpx2.ASGITransport(self.app, raise_app_exceptions=False)
        self.http = watched(httpx2.AsyncClient(transport=transport, base_url="http://earshot"))
        self.key = PROJECT_KEY

    @property
    def keyring(self) -> Keyring[Principal]:
        keyring: Keyring[Principal] = self.app.state.keyrings[0]
        return keyring

    async def get(self, path: str, key: str | None = None) -> httpx2.Response:
        return await self.http.get(f"/api/v1{path}", headers={"X-Api-Key": key or self.key})

    async def project(self, key: str, path: str = "/api/v1/jobs") -> int:
        return (await self.http.get(path, headers={"X-Api-Key": key})).status_code

    async def organization(self, key: str) -> int:
        return (await self.http.get("/api/v2/speakers", headers={"X-Org-Key": key})).status_code

    async def analyze(self, key: str, **headers: str) -> httpx2.Response:
        return await self.http.post("/api/v1/analyze_file", files=FORM, headers={"X-Api-Key": key, **headers})

    async def passes(self) -> dict[str, str]:
        answer = await self.http.post("/dashboard/sign-in", json={"token": await self.links.make()})
        assert answer.headers["cache-control"] == "no-store"
        passes: dict[str, str] = answer.json()
        return passes


@asynccontextmanager
async def opened(directory: Path, clock: Callable[[], float] = time.time, **options: Any) -> AsyncIterator[RealHouse]:
    file = directory / "earshot.db"
    if not file.exists():
        file.write_bytes(await asyncio.to_thread(migrated))
    database = Database(f"sqlite+aiosqlite:///{file}")
    await database.migrate()
    house = RealHouse(database, clock, **options)
    async with house.http:
        yield house
    await house.app.state.forwarder.close()
    await database.close()
