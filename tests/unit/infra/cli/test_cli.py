"""The command line: accounts and settings, as text and as JSON; errors in one line; commands without their extra."""

import errno
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import requires, version
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import typer
from sqlalchemy import text
from typer.testing import CliRunner

from infra import cli
from infra.cli import accounts, partitions, settings, usage
from infra.db.database import Database
from infra.db.stops import SqlStops
from infra.errors import WrongSetting, variable
from infra.examples import RECORDING
from infra.extras import EXTRAS
from infra.settings import Settings
from streams.embedded.lock import DirectoryLock
from tests.unit.infra.conftest import app_of, invoked, run
from topics import apikeys
from topics.errors import BadRequest, NotFound, ServiceError
from topics.ports.stops import Decision, Stop


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> typer.Typer:
    monkeypatch.setenv("EARSHOT_DATA", str(tmp_path))
    run(Settings().database, Database.migrate)
    return app_of(accounts, partitions, settings)


def called(app: typer.Typer, *arguments: str) -> Any:
    """Return the output of a command with --json."""
    return json.loads(invoked(app, *arguments, "--json").stdout)


def test_account_commands_print_json(app: typer.Typer) -> None:
    zoo = called(app, "org", "create", "Zoo")
    apes = called(app, "project", "create", "apes", "--org", "Zoo")
    assert apikeys.well_formed(zoo.pop("key"))
    assert apikeys.well_formed(apes.pop("key"))
    assert called(app, "org", "list") == [zoo]
    assert called(app, "project", "list") == called(app, "project", "list", "--org", "Zoo") == [apes]
    assert apes["organization"] == zoo["id"]
    rotated = called(app, "key", "rotate", "apes", "--yes")
    assert apikeys.well_formed(rotated["key"])
    assert called(app, "project", "list") == [{**apes, "key_shown_as": apikeys.redact(rotated["key"])}]
    key = called(app, "org", "rotate-key", "Zoo", "--yes")["key"]
    assert called(app, "org", "list") == [{**zoo, "key_shown_as": apikeys.redact(key)}]
    assert called(app, "project", "delete", "apes", "--yes") == {"deleted": "apes"}
    assert called(app, "org", "delete", "Zoo", "--yes") == {"deleted": "Zoo"}
    assert called(app, "project", "list") == called(app, "org", "list") == []


def test_stopped_partitions_are_listed_and_decided_on(app: typer.Typer) -> None:
    stop = Stop(3, "earshot.session.command.v1", 17, "20 of 21 records cannot be read", 1_700_000_000_000)
    assert called(app, "partitions", "list") == []
    run(Settings().database, lambda database: SqlStops(database).note(stop))
    assert called(app, "partitions", "skip", "3", "--yes")["decision"] == "skip"
    [row] = called(app, "partitions", "list")
    assert (row["partition"], row["topic"], row["offset"], row["decision"]) == (3, stop.topic, 17, "skip")
    assert called(app, "partitions", "resume", "3")["decision"] == "resume"
    assert run(Settings().database, lambda database: SqlStops(database).note(stop)) == Decision.RESUME
    with pytest.raises(NotFound, match="partition 4 has not stopped"):
        invoked(app, "partitions", "skip", "4", "--yes")


def test_version_is_printed() -> None:
    assert invoked(cli.build(), "--version").stdout == f"earshot {version('earshot-server')}\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "again", "fault"),
    # One function prints all keys, so each command needs one of the faults.
    [
        ("org create Farm", r"earshot org rotate-key \w{24}", "Broken pipe"),
        ("org rotate-key Zoo --yes", "earshot org rotate-key Zoo", "No space left on device"),
        ("project create dogs", r"earshot key rotate \w{24}", "No space left on device"),
        ("key rotate apes --yes", "earshot key rotate apes", "Broken pipe"),
    ],
)
def test_key_that_cannot_be_printed_is_reported(app: typer.Typer, words: str, again: str, fault: str) -> None:
    called(app, "org", "create", "Zoo")
    called(app, "project", "create", "apes")
    if fault == "Broken pipe":
        unread, output = os.pipe()
        os.close(unread)
    else:
        output = os.open("/dev/full", os.O_WRONLY)
    command = [sys.executable, "-m", "infra.cli", *words.split()]
    done = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, text=True)
    os.close(output)
    lost = "earshot: the new key is lost, it could not be printed: standard output"
    assert done.returncode == 1
    assert re.fullmatch(rf"{lost}: {fault}; `{again}` makes another\n", done.stderr), done.stderr


def test_config_shows_settings_and_redacts_secrets(
    app: typer.Typer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("EARSHOT_DATABASE_URL", "postgres://u:secret-word@h/n")
    monkeypatch.setenv("EARSHOT_BOOTSTRAP_ORG_KEY", "a secret-word of 20 letters")
    monkeypatch.setenv("EARSHOT_PORT", "9000")
    shown = called(app, "config")
    assert list(shown) == [variable(field) for field in Settings.model_fields]
    assert shown["EARSHOT_DATABASE_URL"] == "postgresql+asyncpg://u:***@h/n"
    assert shown["EARSHOT_BOOTSTRAP_ORG_KEY"] == "…ters"
    assert shown["EARSHOT_BOOTSTRAP_PROJECT_KEY"] is None
    assert (shown["EARSHOT_PORT"], shown["EARSHOT_PARTITIONS"], shown["EARSHOT_DATA"]) == (9000, 4, str(tmp_path))
    assert shown["EARSHOT_LANES"] == 1
    lines = invoked(app, "config").stdout.splitlines()
    sources = [line.split()[-1] for line in lines if line.startswith(("EARSHOT_PORT", "EARSHOT_HOST"))]
    assert sources == ["default", "environment"]
    assert "secret-word" not in "".join(lines)


def denied(path: str) -> PermissionError:
    return PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)


DENIED = "cannot be used: Permission denied"
AS_USER = "run this as the user of the service"


@pytest.mark.parametrize(
    ("error", "line", "status"),
    [
        (BadRequest("not like this"), "not like this: but otherwise", 1),
        (WrongSetting("model", "there is none"), "EARSHOT_MODEL: there is none: but otherwise", 2),
        (denied("/data/earshot.db"), f"EARSHOT_DATA: /data/earshot.db {DENIED}: {AS_USER}", 2),
        (denied("/"), f"EARSHOT_DATA: / {DENIED}: {AS_USER}", 2),
        (denied("/home/elsewhere.db"), f"/home/elsewhere.db {DENIED}", 2),
    ],
)
def test_known_error_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, line: str, status: int
) -> None:
    monkeypatch.setenv("EARSHOT_DATA", "/data")
    error.add_note("but otherwise")

    def failing() -> typer.Typer:
        app = typer.Typer()

        @app.command()
        def fail() -> None:
            raise error

        return app

    monkeypatch.setattr(cli, "build", failing)
    monkeypatch.setattr(sys, "argv", ["earshot"])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == status
    assert capsys.readouterr().err == f"earshot: {line}\n"


def test_interrupt_while_commands_are_imported_is_silent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "build", mock.Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.slow  # each case starts an interpreter
@pytest.mark.parametrize("words", ["--help", "detect FILE", "analyze FILE", "listen -", "speakers list", "config"])
def test_client_commands_import_no_heavy_modules(words: str) -> None:
    heavy = ["sqlalchemy", "alembic", "numpy", "numba", "onnxruntime", "faust", "aiokafka", "rocksdict", "matplotlib"]
    heavy += ["pydantic", "httpx2"] if words == "--help" else []
    program = (
        "import atexit, sys\n"
        f"atexit.register(lambda: print('imported:', *sorted(set({heavy}) & set(sys.modules))))\n"
        "from infra import cli\n"
        "cli.main()"
    )
    command = [sys.executable, "-c", program, *words.replace("FILE", str(RECORDING)).split()]
    nowhere = {"EARSHOT_URL": "http://127.0.0.1:9", "EARSHOT_PROJECT_KEY": "any", "EARSHOT_ORG_KEY": "any"}
    done = subprocess.run(command, capture_output=True, text=True, env=nowhere, stdin=subprocess.DEVNULL)
    assert done.stdout.splitlines()[-1].split() == ["imported:"], done.stderr


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> typer.Typer:
    """Account commands without any data."""
    monkeypatch.chdir(tmp_path)
    return app_of(accounts, usage)


@pytest.mark.parametrize(
    "words",
    [
        ["org", "create", "Farm"],
        ["org", "list"],
        ["project", "create", "apes"],
        ["key", "rotate", "apes", "--yes"],
        ["usage"],
        ["usage", "--recount"],
    ],
)
@pytest.mark.parametrize("data", [None, "elsewhere"])
def test_commands_do_not_create_missing_database(
    bare: typer.Typer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], data: str | None
) -> None:
    if data is not None:
        monkeypatch.setenv("EARSHOT_DATA", data)
    result = CliRunner().invoke(bare, words)
    assert isinstance(result.exception, ServiceError)
    fault = str(result.exception)
    assert fault.startswith(f"there is no database at {tmp_path / (data or 'data') / 'earshot.db'}: set EARSHOT_DATA")
    assert "--new-database" in fault
    assert list(tmp_path.iterdir()) == []


def test_database_of_running_older_service_is_not_migrated(app: typer.Typer, tmp_path: Path) -> None:
    async def age(database: Database) -> None:
        async with database.writing() as connection:
            await connection.execute(text("UPDATE alembic_version SET version_num = '0007'"))

    run(Settings().database, age)
    lock = DirectoryLock(tmp_path / "log")
    error = CliRunner().invoke(app, ["org", "list"]).exception
    lock.release()
    assert isinstance(error, ServiceError)
    assert str(error).endswith(f"is in use by process {os.getpid()}: stop the service first")
    assert run(Settings().database, Database.revision) == "0007"


def test_new_database_is_created_and_its_default_path_printed(
    bare: typer.Typer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    invoked(bare, "org", "create", "Farm", "--new-database")
    listed = invoked(bare, "org", "list")
    assert "Farm" in listed.stdout
    assert listed.stderr == f"earshot: the database is {tmp_path}/data/earshot.db\n"
    monkeypatch.setenv("EARSHOT_DATA", "data")
    assert invoked(bare, "org", "list").stderr == ""
    monkeypatch.delenv("EARSHOT_DATA")
    monkeypatch.setenv("EARSHOT_DATABASE_URL", "sqlite:///data/earshot.db")
    assert invoked(bare, "org", "list").stderr == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "package", "extra"),
    [
        (("explore", str(RECORDING)), "infra.lab", "lab"),
        (("evaluate", "--card"), "infra.lab", "lab"),
        (("models", "train-tag", "Bell", "--positives", "."), "infra.lab", "lab"),
        (("models", "calibrate", "yamnet", "--recordings", ".", "--csv", "a.csv"), "infra.lab", "lab"),
        (("models", "add", "a.onnx", "--recipe", "ced"), "infra.lab", "lab"),
        (("models", "check", "yamnet"), "onnx", "lab"),
        (("models", "check", "whisper-base"), "ctranslate2", "speech"),
    ],
)
def test_missing_extra_is_named_in_one_line(
    arguments: tuple[str, ...], package: str, extra: str, tmp_path: Path
) -> None:
    """In a program that can import no package of an extra."""
    bare = f"import sys; sys.modules.update(dict.fromkeys({sorted(EXTRAS)}))\nimport infra.cli; infra.cli.main()"
    environment = {"EARSHOT_DATA": str(tmp_path / "data"), "PYTHONPATH": str(Path.cwd())}
    command = [sys.executable, "-c", bare, *arguments]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    line = done.stderr.strip().splitlines()[-1]
    assert (done.returncode, done.stdout) == (1, "")
    assert line.startswith(f"earshot: this needs the package {package}")
    assert f"make extra NAME={extra} in a checkout, or the wheels of make build with [{extra}]" in line
    assert "Traceback" not in done.stderr


def test_extras_match_package_metadata() -> None:
    declared = {"infra.lab": "lab"}
    for distribution in ("earshot-server", "earshot-lab"):
        for line in requires(distribution) or []:
            name, _, extra = line.partition("; extra == ")
            module = (
                re.split("[<=>]", name)[0]
                .replace("-", "_")
                .replace("opentelemetry_exporter_otlp_proto_http", "opentelemetry")
            )
            if distribution == "earshot-lab" or extra:
                declared.setdefault(module, extra.strip("'\"") or "lab")
    assert {name: extra for name, extra in declared.items() if not name.startswith("earshot_")} == EXTRAS


def leaves(command: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield all commands with their words."""
    for name, one in getattr(command, "commands", {}).items():
        yield from leaves(one, *path, name)
    if not hasattr(command, "commands"):
        yield path, command


ALL = dict(leaves(typer.main.get_command(cli.build())))
#: What cannot be undone: somebody's data or key is gone.
FINAL = re.compile(r"delete|remove|rotate|skip|accept|set-aside")


def test_commands_that_cannot_be_undone_ask() -> None:
    asking = {path for path, command in ALL.items() if any(one.name == "yes" for one in command.params)}
    assert asking == {path for path in ALL if FINAL.search(path[-1])}


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_help_shows_no_value_of_flags(path: tuple[str, ...]) -> None:
    assert "<bool>" not in invoked(cli.build(), *path, "--help").stdout
