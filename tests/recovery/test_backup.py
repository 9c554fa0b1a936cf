"""A running service is backed up and restored, by `earshot` and by the other programs in docs/running.md."""

import asyncio
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
from sqlalchemy import make_url

from infra.examples import RECORDING
from infra.service.data_directory import LEFT_OUT
from tests.conftest import ROOT
from tests.contract.api import Api, events, tone
from tests.contract.jobs import SOUND, SPEECH, Jobs
from tests.documentation.commands import commands
from tests.documentation.pages import read
from tests.kafka_launcher.launcher import KafkaCluster
from tests.lengths import SEED
from tests.postgres import postgres_database
from tests.process import ADMIN_KEY, ORG_KEY, ServiceProcess, ask
from tests.recovery.load import Client, Stream, half_second
from tests.recovery.truth import expected_events
from tests.stub_engines import StubEngines
from tests.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

#: The page's programs that the test runs; it handles services and file owners itself.
PROGRAMS: Final = frozenset({"createdb", "mkdir", "pg_dump", "pg_restore", "tar"})
VOICE: Final = RECORDING.with_name("kim.ogg")
CHUNK_SECONDS: Final = 0.5
STREAMS: Final = 32


def script(block: int) -> str:
    """Return one of the page's four backup blocks."""
    scripts = [block.text for block in read(ROOT / "docs" / "running.md").blocks() if "/backup/" in block.text]
    assert len(scripts) == 4
    return scripts[block]


def run_earshot(block: int, service: ServiceProcess, backup: Path) -> str:
    """Run the `earshot` command of a block as the test's user, and return its output."""
    (words,) = [line.split("/bin/earshot ")[1] for line in script(block).splitlines() if "/bin/earshot " in line]
    return service.command(*words.replace("/backup/earshot", str(backup)).split())


def run(block: int, places: Mapping[str, str]) -> None:
    """Run one of the page's four backup blocks, with its paths replaced by the test's."""
    ran = 0
    for command in commands(script(block)):
        if command[0] in PROGRAMS:
            for place, ours in places.items():
                command = [word.replace(place, ours) for word in command]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, f"{command}: {done.stderr}"
            ran += 1
    assert ran >= len(places) - 1


@contextmanager
def sessions(service: ServiceProcess) -> Iterator[Api]:
    api = Api(service)
    with api.http:
        yield api


class Story:
    """A continuing stream, a file that is not sealed, a completed job, and a voice, at one service."""

    def __init__(self, service: ServiceProcess) -> None:
        with sessions(service) as api:
            self.stream, self.file = api.create(), api.create("file")
            api.send(self.stream, *[tone(CHUNK_SECONDS)] * 5)
            api.send(self.file, tone(2.0))
            # The fourth window is the last one that five chunks complete; a read waits some seconds for it.
            (_,) = wait_for(lambda: api.page(self.stream, offset=3)["inference"]["results"])
            self.token = api.page(self.stream, count=2)["inference"]["page"]["next_token"]
        with Jobs(service) as jobs:
            self.job = jobs.accepted(RECORDING.read_bytes(), {**SOUND, **SPEECH})
            jobs.completed(self.job)
        form: Any = {"speaker": (None, "Kim"), "file": ("kim.ogg", VOICE.read_bytes(), "audio/ogg")}
        answer = httpx2.post(
            f"{service.url}/api/v2/voice", files=form, headers={"X-Org-Key": ORG_KEY}, timeout=60
        ).json()
        assert answer["error"] == "", answer

    def answers(self, service: ServiceProcess) -> dict[str, str]:
        """Return the answers to reads of all of it."""
        paths = f"jobs/{self.job}", f"jobs/{self.job}/captions.vtt"
        keyed = {"X-Api-Key": service.key, "X-Org-Key": ORG_KEY, "Authorization": f"Bearer {ADMIN_KEY}"}
        asked = [f"{service.url}/api/v1/{path}" for path in paths]
        asked += [f"{service.url}/api/v2/speakers", f"{service.url}/admin/v1/usage", f"{service.url}/admin/v1/projects"]
        read = {url.removeprefix(service.url): httpx2.get(url, headers=keyed, timeout=60) for url in asked}
        with sessions(service) as api:
            read["first page"] = api.status(self.stream, count=2)
            read["the page after it"] = api.status(self.stream, next_token=self.token)
        assert all(answer.status_code == 200 for answer in read.values()), read
        return {name: answer.text for name, answer in read.items()}

    def goes_on(self, service: ServiceProcess) -> None:
        """Send more to the stream, end both, and read all of their windows."""
        with sessions(service) as api:
            assert api.put(self.stream, 5, tone(CHUNK_SECONDS)).status_code == 200
            for session, count in (self.stream, 5), (self.file, 3):
                assert api.seal(session).status_code == 204
                assert len(events(api.follow(session))) == count


def test_documented_backup_of_embedded_log_is_restored(tmp_path: Path, engines: StubEngines) -> None:
    settings = {**engines.settings, "keep_voice": "true"}
    service = ServiceProcess(tmp_path / "data", **settings).start()
    service.command("models", "use", "sed-mini")
    story = Story(service)
    before = story.answers(service)
    said = run_earshot(0, service, tmp_path / "backup")
    assert "backup holds earshot.db, voices, models, log, lanes of" in said
    assert service.stop() == 0, service.tail()
    shutil.rmtree(service.data)
    restored = ServiceProcess(tmp_path / "restored", **settings)
    run_earshot(1, restored, tmp_path / "backup")
    assert not (restored.data / "tables").exists()
    with restored:
        assert ask("GET", f"{restored.url}/readyz").json() == {"status": "ok"}, "missing tables are no fault"
        assert not (restored.data / LEFT_OUT).exists()
        assert story.answers(restored) == before
        with sessions(restored) as api:
            assert api.status(api.create()).headers["Earshot-Model"].startswith("sed-mini@")
        story.goes_on(restored)
        (kept,) = [path for path in (restored.data / "voices").rglob("*") if path.is_file()]
        assert kept.read_bytes() == VOICE.read_bytes()


async def stream_while_backed_up(service: ServiceProcess, backup: Path) -> list[Stream]:
    """Stream while a backup is made, then kill the service.

    Returns:
        The streams with the chunks acknowledged before the backup began.
    """
    async with Client(service) as client:
        streams = [await client.open() for _ in range(STREAMS)]

        async def send(number: int) -> None:
            while True:
                await client.put(streams[number], SEED + number)

        sending = asyncio.gather(*(send(number) for number in range(STREAMS)))
        while client.acknowledged < 4 * STREAMS:
            await asyncio.wait({sending}, timeout=0.05)
            assert not sending.done(), sending
        before = [Stream(stream.session, list(stream.chunks)) for stream in streams]
        acknowledged = client.acknowledged
        await asyncio.to_thread(service.command, "backup", str(backup))
        assert client.acknowledged > acknowledged, "nothing was sent while the backup was made"
        service.kill()
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        return before


async def same_events(service: ServiceProcess, before: list[Stream]) -> None:
    """Seal the streams of a restored service, and compare them with the acknowledged chunks."""
    async with Client(service) as client:
        for number, stream in enumerate(before):
            acknowledged = len(stream.chunks)
            # The backup may contain more; these chunks continue from there.
            answer = await client.status(stream.session)
            assert answer.status_code == 200, answer.text
            there = int(answer.json()["refs"]["chunk_sequence"])
            assert there >= acknowledged
            stream.chunks += [half_second(SEED + number, more) for more in range(acknowledged, there)]
            await client.seal(stream)
        for stream in before:
            assert await client.events(stream.session) == expected_events(stream.chunks)


def test_backup_under_load_is_restored(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path / "data") as service:
        before = asyncio.run(stream_while_backed_up(service, tmp_path / "backup"))
        shutil.rmtree(service.data)
        service.command("restore", str(tmp_path / "backup"))
        service.start()
        asyncio.run(same_events(service, before))
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "backup").rglob("*")} == {0}


@pytest.mark.parametrize("lost", ["CURRENT", "*.log"])
def test_damaged_log_is_salvaged(tmp_path: Path, engines: StubEngines, lost: str) -> None:
    with ServiceProcess(tmp_path / "data", **engines.settings, keep_voice="true") as service:
        story = Story(service)
        before = story.answers(service)
        service.kill()
        for file in (service.data / "log" / "log").glob(lost):
            file.unlink()
        service.start(wait=0)
        assert service.process is not None
        assert service.process.wait(60) == 1
        last = service.tail(1)
        for command in "earshot restore BACKUP --set-aside", "earshot salvage", "earshot set-aside":
            assert f"`{command}`" in last
        print(service.command("salvage"))
        service.start()
        assert story.answers(service) == before
        if lost == "CURRENT":
            story.goes_on(service)
        with sessions(service) as api:
            api.send(session := api.create(), *[tone(CHUNK_SECONDS)] * 5)
            assert api.seal(session).status_code == 204
            assert len(events(api.follow(session))) == 4
            if lost == "*.log":
                # Its audio was unprocessed, and only in the log.
                assert api.seal(story.file).status_code == 204
                assert "no longer in the log" in api.status(story.file).json()["error"]


@pytest.mark.kafka
def test_documented_backup_of_kafka_and_postgresql_is_restored(tmp_path: Path, engines: StubEngines) -> None:
    if missing := [name for name in ("java", "mvn", "pg_dump", "pg_restore") if shutil.which(name) is None]:
        pytest.skip(f"{' and '.join(missing)} not installed")
    shared = {**engines.settings, "keep_voice": "true", "voices_url": str(tmp_path / "voices"), "partitions": "4"}
    backup = tmp_path / "backup"
    backup.mkdir()
    with postgres_database() as database:
        places = {"/srv/kafka": str(tmp_path / "kafka"), "/backup/": f"{backup}/", "postgresql://db/earshot": database}
        with KafkaCluster(tmp_path / "kafka", port=None) as kafka:
            broker = f"kafka://{kafka.bootstrap}"
            with ServiceProcess(tmp_path / "data", broker=broker, database_url=database, **shared) as service:
                story = Story(service)
                before = story.answers(service)
        run(2, places)
        shutil.rmtree(tmp_path / "kafka")
        restored_url = make_url(database).set(database="earshot").render_as_string()
        other = {"/srv/kafka": str(tmp_path / "restored-kafka"), "postgresql://db/earshot": restored_url}
        run(3, {**places, **other, "postgresql://db/postgres": database})
        with KafkaCluster(tmp_path / "restored-kafka", port=None) as kafka:
            broker = f"kafka://{kafka.bootstrap}"
            with ServiceProcess(tmp_path / "restored", broker=broker, database_url=restored_url, **shared) as restored:
                assert story.answers(restored) == before
                story.goes_on(restored)
