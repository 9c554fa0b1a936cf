"""`earshot usage` as a user types it: totals, lines, and recounts from the log."""

import asyncio
import io
import json
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from unittest import mock

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from app.admin.usage_rows import LineRow, paged
from infra.cli import accounts, usage
from infra.db.accounts import Accounts
from infra.db.database import Database
from infra.db.ledger import SqlLedger
from infra.settings import Settings
from streams.embedded.embedded_log import EmbeddedLog
from tests.unit.infra.conftest import app_of, invoked, run
from topics import catalog, keys, record_codec, rows
from topics.catalog import TopicPartition
from topics.jobs.options import Options, Service
from topics.jobs.records import (
    Accepted,
    Billed,
    Finished,
    JobCommand,
    JobResult,
    Part,
    Portion,
    Removed,
    Source,
    Started,
)
from topics.jobs.rules import Entry, EntryState, JobHead, JobState
from topics.keys import partition_of
from topics.ports.directory import Principal
from topics.ports.ledger import Charge, MeteredService
from topics.sessions.records import Cursor, Metered, Opened, SessionCommand
from topics.sessions.rows import Block, Newest
from topics.sessions.rules import SessionHead, SessionState

pytestmark = pytest.mark.slow

NOVEMBER = 1_793_491_200_000  # 2026-11-01T00:00:00Z
PARTITIONS = 2
TOPICS = {
    catalog.JOB_COMMANDS: JobCommand,
    catalog.JOB_RESULTS: JobResult,
    catalog.COMMANDS: SessionCommand,
}
BOTH = Options(sound_event_detection=True, speech_analysis=True)


@pytest.mark.parametrize("form", usage.Format)
def test_full_disk_is_noticed_while_printing(monkeypatch: pytest.MonkeyPatch, form: usage.Format) -> None:
    row = LineRow.of(Charge("j", MeteredService.SOUND, "p", "o", 1, "m", 0))
    full = io.StringIO()
    monkeypatch.setattr(full, "flush", mock.Mock(side_effect=OSError("No space left on device")))
    monkeypatch.setattr(sys, "stdout", full)
    with pytest.raises(OSError, match="No space left"):
        asyncio.run(usage._print(LineRow, paged([row]), form))


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> typer.Typer:
    monkeypatch.setenv("EARSHOT_DATA", str(tmp_path))
    return app_of(accounts, usage)


def write(directory: Path, *charges: Charge) -> Principal:
    """Write charges of a new project "apes" into the ledger; return its principal."""

    async def story(database: Database) -> Principal:
        await database.migrate()
        made = Accounts(database)
        await made.create_organization("Zoo")
        apes, _ = await made.create_project("apes")
        mine = {"project": apes.id, "organization": apes.organization}
        await SqlLedger(database).record([msgspec.structs.replace(one, **mine) for one in charges])
        return Principal(apes.id, apes.organization)

    return run(f"sqlite+aiosqlite:///{directory / 'earshot.db'}", story)


@pytest.fixture
def project(tmp_path: Path) -> str:
    sound = Charge("j1", MeteredService.SOUND, "", "", 61_001, "yamnet@1", NOVEMBER)
    speech = Charge("j1", MeteredService.SPEECH, "", "", 61_000, "a, b", NOVEMBER)
    return write(tmp_path, sound, speech, msgspec.structs.replace(sound, job="j2", at_ms=NOVEMBER - 1)).project


def test_totals_print_as_table_json_and_csv(app: typer.Typer, project: str) -> None:
    names, october, _, speech = invoked(app, "usage").stdout.splitlines()
    assert names.split()[:6] == ["month", "project", "service", "jobs", "audio_seconds", "models"]
    assert october.split()[:6] == ["2026-10", "apes", "sound_event_detection", "1", "61.001", "yamnet@1"]
    assert speech.split()[:5] == ["2026-11", "apes", "speech_analysis", "1", "61.000"]
    (row,) = json.loads(invoked(app, "usage", "--month", "2026-10", "--format", "json", "--project", "apes").stdout)
    assert (row["audio_seconds"], row["jobs"], row["project_id"]) == (61.001, 1, project)
    table = invoked(app, "usage", "--format", "csv", "--organization", "Zoo").stdout.splitlines()
    assert len(table) == 4
    assert table[3].startswith('2026-11,apes,speech_analysis,1,61.000,"a, b",')


@pytest.mark.parametrize("form", usage.Format)
def test_lines_are_printed_as_they_arrive(form: usage.Format, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [LineRow.of(charged("j" * (n + 1))) for n in range(4)]
    printed = [""]

    async def pages() -> AsyncIterator[list[LineRow]]:
        for row in rows:
            yield [row]
            printed.append(capsys.readouterr().out)
            assert row.job in printed[-1]

    asyncio.run(usage._print(LineRow, pages(), form))
    text = "".join(printed) + capsys.readouterr().out
    if form is usage.Format.JSON:
        assert text == json.dumps([msgspec.structs.asdict(row) for row in rows], indent=2) + "\n"
    else:
        assert (text.count("accepted_at"), len(text.splitlines())) == (1, 5)


def test_usage_of_deleted_and_unknown_projects(app: typer.Typer, project: str) -> None:
    invoked(app, "project", "delete", "apes", "--yes")
    assert len(json.loads(invoked(app, "usage", "--project", project, "--format", "json").stdout)) == 3
    nothing = invoked(app, "usage", "--project", "b" * 24)
    assert (nothing.stdout, nothing.stderr) == ("", "earshot: there is no such usage\n")
    failed = CliRunner().invoke(app, ["usage", "--project", "bats"])
    assert "there is no project 'bats'" in str(failed.exception)


@pytest.mark.parametrize(
    "words",
    [
        ["usage", "--month", "2026-13"],
        ["usage", "--month", "26-1"],
        ["usage", "--recount", "--lines"],
        ["projects", "plan", "apes"],
        ["project", "plan", "apes", "--unlimited", "--free-seconds", "1"],
        ["project", "plan", "apes", "--free-seconds", "-1"],
    ],
)
def test_invalid_arguments_are_rejected(app: typer.Typer, words: list[str]) -> None:
    invoked(app, *words, code=2)


class Writing:
    """A service's log, written by hand; `now` is its time in milliseconds."""

    def __init__(self, directory: Path, owner: Principal) -> None:
        self.now = NOVEMBER
        self._owner = owner
        self._log = EmbeddedLog.open(directory / "log", sync=False, clock=lambda: self.now / 1000)
        for topic in *TOPICS, catalog.CHANGELOG:
            self._log.declare(topic, PARTITIONS)

    async def put(self, id: str, *written: JobCommand | JobResult | SessionCommand) -> None:
        for record in written:
            topic = next(topic for topic, kind in TOPICS.items() if isinstance(record, kind))
            await self._log.append(topic, partition_of(id, PARTITIONS), id.encode(), record_codec.encode(record))

    async def stream(self, session: str) -> None:
        """Open a session."""
        who = (self._owner.project, self._owner.organization)
        opened = Opened("c", "stream", "audio/wav", who[0], 1000, 500, model="m", organization=who[1])
        await self.put(session, opened)

    async def accept(self, job: str) -> None:
        await self.put(job, Part("c", "u", 0, b"abc"), self.acceptance())

    def acceptance(self, upload: str = "u") -> Accepted:
        source = Source("audio/wav", "wav", 3, 16000, 1)
        who = (self._owner.project, self._owner.organization)
        return Accepted("c", upload, 1, *who, BOTH, source, "m", upload.encode())

    async def succeed(self, job: str) -> None:
        sound = Service.SOUND
        done = Finished(sound, "r", 1, audio_ms=1234, model="m")
        await self.put(job, Started(sound, "r"), Portion(sound, "r", 0, b""), done, done)

    async def row(
        self,
        id: str,
        kind: bytes,
        row: JobHead | Accepted | SessionHead | Newest | Opened | None,
        of: bytes = keys.JOB,
    ) -> None:
        key, value = keys.row_key(of, id, kind), None if row is None else rows.encode(row)
        await self._log.append(catalog.CHANGELOG, partition_of(id, PARTITIONS), key, value)

    async def keep(self, job: str, state: JobState, *entries: Entry) -> None:
        """Write the rows of a job, with two versions of its head."""
        head = JobHead(state, 9, self.now, "u", created=self.now, entries=entries)
        await self.row(job, keys.REQUEST, self.acceptance())
        await self.row(job, keys.HEAD, msgspec.structs.replace(head, entries=()))
        await self.row(job, keys.HEAD, head)

    def trim(self, topic: str, job: str) -> None:
        tp = TopicPartition(topic, partition_of(job, PARTITIONS))
        self._log.trim(tp, self._log.end(tp))

    async def close(self) -> None:
        await self._log.append(catalog.JOB_RESULTS, 0, b"poison", b"?")
        await self._log.close()


def recounted(
    app: typer.Typer,
    directory: Path,
    log: Callable[[Writing], Coroutine[object, None, None]],
    *charges: Charge,
    code: int = 0,
) -> tuple[list[tuple[str, str]], str]:
    """Write a log and a ledger; return (job, difference) pairs, and stderr."""
    owner = write(directory, *charges)

    async def story() -> None:
        writing = Writing(directory, owner)
        await log(writing)
        await writing.close()

    asyncio.run(story())
    done = invoked(app, "usage", "--recount", "--format", "json", code=code)
    return [(row["job"], row["difference"]) for row in json.loads(done.stdout)], done.stderr


def charged(job: str, service: MeteredService = MeteredService.SOUND, audio_ms: int = 1234) -> Charge:
    return Charge(job, service, "", "", audio_ms, "m", NOVEMBER)


def test_recount_of_correct_ledger_finds_no_difference(app: typer.Typer, tmp_path: Path) -> None:
    async def log(writing: Writing) -> None:
        await writing.accept("plain")
        await writing.succeed("plain")
        await writing.put("plain", Finished(Service.SPEECH, "x", 0, error="of a run that never began"))
        await writing.put("plain", Started(Service.SPEECH, "r"), Finished(Service.SPEECH, "r", 0, error="no engine"))
        await writing.put("plain", Billed((Service.SOUND,)))
        # The request was repeated, and the first one lost; the run was begun by a node that died.
        await writing.put("twice", Part("c", "u1", 0, b"abc"), Part("c", "u2", 0, b"abc"))
        await writing.put("twice", writing.acceptance("u1"), writing.acceptance("u2"), writing.acceptance("u2"))
        await writing.put("twice", Started(Service.SOUND, "dead"), Portion(Service.SOUND, "dead", 0, b""))
        await writing.succeed("twice")
        await writing.put("twice", Finished(Service.SOUND, "dead", 1, audio_ms=9), Billed((Service.SOUND,)))
        await writing.accept("unfinished")
        await writing.put("refused", Part("c", "u", 0, b"abc"), Part("c", "u", 2, b"abc"))

    differences, err = recounted(app, tmp_path, log, charged("plain"), charged("twice"))
    assert (differences, err) == ([], "earshot: 3 jobs compared, 0 differences\n")


def test_recount_names_every_difference_even_of_removed_jobs(app: typer.Typer, tmp_path: Path) -> None:
    async def log(writing: Writing) -> None:
        for job in "absent", "late", "other":
            await writing.accept(job)
            await writing.succeed(job)
        for job in "r-absent", "r-billed", "r-late":
            await writing.accept(job)
            await writing.put(job, Removed("c"))
            await writing.succeed(job)
        for job in "absent", "r-absent", "r-billed":
            await writing.put(job, Billed((Service.SOUND,)))

    ledger = [charged("r-billed"), charged("other", audio_ms=1233), charged("other", MeteredService.SPEECH)]
    differences, err = recounted(app, tmp_path, log, *ledger, code=1)
    assert differences == [
        ("absent", "not in the ledger, though the log says that it was written"),
        ("late", "not in the ledger yet; a node writes it when it runs"),
        ("other", "audio_ms is 1233 in the ledger, 1234 on the log"),
        ("other", "in the ledger, but no success is on the log"),
        ("r-absent", "not in the ledger, though the log says that it was written"),
    ]
    assert err == "earshot: 6 jobs compared, 5 differences\n"


def test_recount_skips_jobs_removed_by_retention(app: typer.Typer, tmp_path: Path) -> None:
    async def log(writing: Writing) -> None:
        await writing.accept("old")
        await writing.accept("older")
        await writing.put("old", Started(Service.SOUND, "r"))
        writing.trim(catalog.JOB_RESULTS, "old")
        writing.trim(catalog.JOB_COMMANDS, "older")
        await writing.succeed("old")
        await writing.succeed("older")
        writing.now += 1000
        await writing.put("young", Part("c", "u", 0, b"abc"))
        writing.trim(catalog.JOB_COMMANDS, "young")
        await writing.put("young", writing.acceptance())
        await writing.succeed("young")

    assert {partition_of(job, PARTITIONS) for job in ("old", "older", "young")} == {0, 1}
    young = msgspec.structs.replace(charged("young"), at_ms=NOVEMBER + 1000)
    differences, err = recounted(app, tmp_path, log, young, charged("ancient"))
    assert differences == []
    assert err == "earshot: 1 job compared, 0 differences; 3 not compared: neither records nor rows remain\n"


def test_recount_falls_back_to_rows_for_missing_records(app: typer.Typer, tmp_path: Path) -> None:
    names = {name: name.ljust(24, "0") for name in ("right", "owed", "absent", "running", "removed", "gone")}
    billed = Entry(Service.SOUND, EntryState.SUCCESS, "r", 1, 1.0, None, 1234, "m", billed=True)
    unbilled = msgspec.structs.replace(billed, billed=False)

    async def log(writing: Writing) -> None:
        await writing.keep(names["right"], JobState.COMPLETED, billed)
        await writing.keep(names["absent"], JobState.COMPLETED, billed)
        await writing.keep(names["owed"], JobState.REMOVED, unbilled)
        await writing.keep(names["running"], JobState.PROCESSING, Entry(Service.SOUND, EntryState.RUNNING, "r", 1))
        # Not folded into any row when the service was killed.
        await writing.put(names["running"], Finished(Service.SOUND, "r", 1, audio_ms=1234, model="m"))
        await writing.keep(names["gone"], JobState.COMPLETED, billed)
        for kind in keys.REQUEST, keys.HEAD:
            await writing.row(names["gone"], kind, None)
        await writing.row(names["right"], keys.AUDIO, None)

    ledger = [charged(names[name]) for name in ("right", "gone")]
    ledger += [charged(names["owed"], MeteredService.SPEECH), charged(names["right"], MeteredService.SPEECH)]
    differences, err = recounted(app, tmp_path, log, *ledger, code=1)
    assert differences == [
        (names["absent"][:8], "not in the ledger, though the log says that it was written"),
        (names["owed"][:8], "not in the ledger yet; a node writes it when it runs"),
        (names["right"][:8], "in the ledger, but no success is on the log"),
        (names["running"][:8], "not in the ledger yet; a node writes it when it runs"),
    ]
    assert err == (
        "earshot: 4 jobs compared, 4 differences; 4 of them compared by their rows, because the log no longer has "
        "all their records; 1 not compared: neither records nor rows remain\n"
    )


def test_recount_requires_stopped_service(app: typer.Typer, tmp_path: Path) -> None:
    run(Settings(data=tmp_path).database, Database.migrate)
    failed = CliRunner().invoke(app, ["usage", "--recount"])
    assert f"there is no log in {tmp_path / 'log'}" in str(failed.exception)

    async def story() -> None:
        log = EmbeddedLog.open(tmp_path / "log", sync=False)
        failed = await asyncio.to_thread(CliRunner().invoke, app, ["usage", "--recount"])
        assert "stop the service" in str(failed.exception)
        await log.close()

    asyncio.run(story())
    nothing = invoked(app, "usage", "--recount", "--format", "csv")
    assert nothing.stdout == "job,service,difference\n"
    assert nothing.stderr == "earshot: 0 jobs compared, 0 differences\n"


# --- sessions -------------------------------------------------------------------------------------------------------


def metered(session: str, audio_ms: int, step: int = 0, later_ms: int = 0) -> Charge:
    return Charge(session, MeteredService.SESSION, "", "", audio_ms, "m", NOVEMBER + later_ms, step)


def test_recount_compares_sessions_by_records(app: typer.Typer, tmp_path: Path) -> None:
    async def log(writing: Writing) -> None:
        await writing.stream("right")
        await writing.put("right", Metered("ledger", 1200), Metered("ledger", 1203))
        await writing.stream("absent")
        await writing.put("absent", Metered("ledger", 3))
        await writing.stream("other")
        await writing.put("other", Metered("ledger", 3), Metered("ledger", 3))
        await writing.stream("written")
        await writing.put("written", Metered("ledger", 3))
        await writing.stream("invented")
        await writing.put("invented", Metered("ledger", 3))
        await writing.put("nobody knows who", Metered("ledger", 3))

    ledger = [metered("right", 600_500), metered("right", 1500, 1, 600_500), metered("other", 1999)]
    ledger += [metered("written", 2000), metered("invented", 2000), metered("invented", 500, 1), metered("gone", 500)]
    differences, err = recounted(app, tmp_path, log, *ledger, code=1)
    assert differences == [
        ("absent", "step 0 is not in the ledger; a node writes it when it runs, if it did not yet"),
        ("invented", "in the ledger, but its windows are not on the log"),
        ("other", "audio_ms is 1999 in the ledger, 2000 on the log"),
    ]
    assert err == (
        "earshot: 0 jobs and 5 sessions compared, 3 differences; 1 not compared: neither records nor rows remain\n"
    )


def test_recount_compares_sessions_by_rows_and_deleted_ones_by_records(app: typer.Typer, tmp_path: Path) -> None:
    session, deleted, trimmed = "S" * 24, "D" * 24, "T" * 24

    async def log(writing: Writing) -> None:
        await writing.stream(session)
        opened = Opened("c", "stream", "audio/wav", "p", 1000, 500, model="m", at=NOVEMBER)
        head = SessionHead("stream", None, NOVEMBER, 1)
        newest = Newest(5, Cursor(), True, NOVEMBER, (), Block("m", bytes(5)))
        for kind, row in ((keys.REQUEST, opened), (keys.HEAD, head), (keys.NEWEST, newest)):
            await writing.row(session, kind, row, keys.SESSION)
        await writing.stream(deleted)
        await writing.put(deleted, Metered("ledger", 3))
        tombstone = SessionHead("stream", None, NOVEMBER, 1, SessionState.DELETED, finished=True, derived=True)
        for gone in deleted, trimmed:
            await writing.row(gone, keys.HEAD, tombstone, keys.SESSION)

    ledger = metered(deleted, 1999), metered(trimmed, 500)
    differences, err = recounted(app, tmp_path, log, *ledger, code=1)
    assert differences == [
        (deleted, "audio_ms is 1999 in the ledger, 2000 on the log"),
        (session, "step 0 is not in the ledger; a node writes it when it runs, if it did not yet"),
    ]
    rest = "1 not compared: neither records nor rows remain"
    assert err == f"earshot: 0 jobs and 2 sessions compared, 2 differences; {rest}\n"
