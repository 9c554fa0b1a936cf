"""Nothing of a deleted project or organization is served, kept or billed, whoever deletes it, and across kills."""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import httpx2
import pytest

from app.parts import ALARMS, JOBS, JOBS_PREFIX, OWN_SOUNDS, SESSIONS
from tests.contract.api import Api, tone, wav
from tests.contract.jobs import SOUND, Jobs
from tests.process import ServiceProcess, ask
from tests.recovery.conftest import ON_EMBEDDED
from tests.waiting import wait_for

REMOVED = "project.removed"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def settings() -> dict[str, str]:
    return {"model": "sed-mini", "job_audio_seconds": "3600"}


@dataclass
class Tenant:
    """A project with sessions and a job, and what its clients know: ids and links that work without its key."""

    service: ServiceProcess
    name: str
    organization: str = "demo"
    key: str = field(init=False)
    sessions: list[str] = field(init=False)
    job: str = field(init=False)
    link: str = field(init=False)

    def __post_init__(self) -> None:
        self.key = self.service.project(self.name, self.organization)
        with Api(self.service) as api, Jobs(self.service, self.key) as jobs:
            api.key = self.key
            self.sessions = [api.create(kind) for kind in ("stream", "stream", "file")]
            api.send(self.sessions[0], tone(1.0))
            api.send(self.sessions[1], tone(1.0))
            api.seal(self.sessions[1])
            self.job = jobs.accepted(wav(tone(2.0)), SOUND)
            jobs.completed(self.job)
            link = jobs.http.post(f"/jobs/{self.job}/audio", headers=jobs.keyed)
            assert link.status_code == 200, link.text
            self.link = f"{self.service.url}{link.json()['url']}"

    def requests(self) -> Iterator[httpx2.Response]:
        """Yield the answers to all requests with an id, to those by link, and to some with the key of before."""
        tables: dict[str, Mapping[str, Iterable[str]]] = {
            "": SESSIONS.table,
            JOBS_PREFIX: {**JOBS.table, **OWN_SOUNDS.table, **ALARMS.table},
        }
        for prefix, table in tables.items():
            for path, methods in table.items():
                ids = self.sessions if "{session_id}" in path else [self.job] if "{job_id}" in path else []
                for method, id in product(methods, ids):
                    filled = path.format(
                        session_id=id, job_id=id, chunk_sequence=1, name="bell", mark="m", sequence=0, destination="d"
                    )
                    yield self.ask(method, prefix + filled)
        yield ask("GET", self.link)
        yield self.ask("POST", "/audio_sessions/", json={"type": "stream", "content_type": "audio/wav"})
        yield self.ask("GET", f"{JOBS_PREFIX}/project")

    def ask(self, method: str, path: str, **more: Any) -> httpx2.Response:
        return ask(method, self.service.url + path, headers={"X-Api-Key": self.key}, **more)

    def served(self) -> list[str]:
        return [f"{one.request.url}: {one.text}" for one in self.requests() if one.status_code not in (401, 404)]


def lines(service: ServiceProcess, tenant: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = service.operate("GET", f"/usage?lines=true&project={tenant}")
    return rows


def wait_for_removal(*tenants: Tenant) -> None:
    """Wait until their sessions and jobs are deleted, and not just refused."""
    log, due = tenants[0].service.log, sum(len(tenant.sessions) + 1 for tenant in tenants)

    def removed() -> int:
        return sum(json.loads(line)["ids"] for line in log.read_text().splitlines() if REMOVED in line)

    wait_for(lambda: removed() == due)


@ON_EMBEDDED
def test_deletion_takes_effect_at_once_and_on_everything(victim: ServiceProcess) -> None:
    other, gone, later = (Tenant(victim, name) for name in ("kept", "gone", "later"))
    (project,) = [one["id"] for one in victim.operate("GET", "/projects") if one["name"] == "gone"]
    victim.operate("DELETE", "/projects/gone")
    assert gone.served() == []
    wait_for_removal(gone)
    # The seconds of each session with audio and of the job; the last ones are written soon after the deletion.
    wait_for(lambda: len(lines(victim, project)) == 3)
    billed = lines(victim, project)
    assert gone.served() == []
    assert lines(victim, project) == billed, "what was refused is not billed"
    # A command takes effect on a running service soon.
    victim.command("project", "delete", "later", "--yes")
    wait_for(lambda: later.ask("GET", f"{JOBS_PREFIX}/project").status_code == 401)
    wait_for_removal(gone, later)
    assert later.served() == []
    for path, noun, count in ("/api/v1/jobs", "jobs", 1), ("/audio_sessions/", "sessions", 3):
        listed = ask("GET", victim.url + path, headers={"X-Api-Key": other.key}).json()
        assert len(listed[noun]) == count, "of another project"


@pytest.mark.parametrize(
    ("victim", "command"),
    [
        ("embedded", ("project", "delete", "gone")),
        pytest.param("kafka", ("org", "delete", "Zoo"), marks=pytest.mark.kafka),
    ],
    indirect=["victim"],
)
def test_deletion_is_finished_across_kills(victim: ServiceProcess, command: tuple[str, ...]) -> None:
    """The service dies between the deletion of the project and that of its sessions and jobs."""
    victim.operate("POST", "/organizations", json={"name": "Zoo"})
    gone = Tenant(victim, "gone", "Zoo")
    victim.kill()
    victim.command(*command, "--yes")
    for _ in range(2):
        victim.start()
        assert gone.served() == []
        victim.kill()
    victim.start()
    wait_for_removal(gone)
    victim.stop()
    with closing(sqlite3.connect(victim.data / "earshot.db")) as database:
        database.execute("DELETE FROM deleted_projects")
        database.commit()
    victim.start()
    assert gone.served() == [], "nothing is left that the note would have to hide"
