"""Commands of an operator print the same for the database here and for a service elsewhere."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from structlog.testing import capture_logs
from typer.testing import CliRunner

from infra.cli import accounts, admin_client, usage
from infra.cli.admin_client import AdminClient
from tests.unit.app.admin.house import KEY, URL, House, Transport, tell
from topics.errors import BadRequest, NotFound

READING = [
    ["org", "list"],
    ["org", "list", "--json"],
    ["project", "list"],
    ["project", "list", "--json", "--org", "Zoo"],
    ["project", "list", "--org", "Farm"],
    ["usage"],
    *(["usage", "--format", form, *lines] for form in ("table", "csv", "json") for lines in ([], ["--lines"])),
    ["usage", "--service", "speech_analysis", "--format", "csv"],
    ["usage", "--month", "2026-10", "--project", "apes", "--organization", "Zoo"],
    ["usage", "--project", "b" * 24, "--format", "csv"],
]
#: In this order, each once here and once elsewhere, under other names.
WRITING = [
    ["org", "create", "NAME"],
    ["org", "create", "NAME's other", "--json"],
    ["org", "rotate-key", "NAME"],
    ["project", "create", "NAME", "--org", "NAME"],
    ["project", "plan", "NAME", "--free-seconds", "1200", "--json"],
    ["project", "plan", "NAME", "--unlimited"],
    ["key", "rotate", "NAME", "--json"],
    ["project", "delete", "NAME", "--yes"],
    ["org", "delete", "NAME", "--yes"],
    ["org", "delete", "NAME", "--yes"],
    ["org", "create", " "],
    ["project", "create", "NAME"],
    ["usage", "--project", "NAME"],
]


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[typer.Typer]:
    monkeypatch.delenv("EARSHOT_ADMIN_URL", raising=False)
    monkeypatch.setenv("EARSHOT_ADMIN_KEY", KEY)
    monkeypatch.setenv("EARSHOT_DATA", str(tmp_path))
    monkeypatch.setattr(admin_client, "AdminClient", lambda *to: AdminClient(*to, transport=Transport(tmp_path)))
    made = typer.Typer()
    accounts.register(made)
    usage.register(made)
    tell(tmp_path, House.used)
    with capture_logs():  # of the service elsewhere, which is in this process here
        yield made


def ran(app: typer.Typer, *arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, arguments)
    return result.exit_code, result.stdout, str(result.exception)


def test_reading(app: typer.Typer) -> None:
    ran(app, "org", "create", "Farm")
    for arguments in READING:
        here = ran(app, *arguments)
        assert here[0] == 0
        assert here[1] or "Farm" in arguments
        assert ran(app, *arguments, "--url", URL) == here


def test_writing(app: typer.Typer) -> None:
    def told(name: str, *to: str) -> list[tuple[object, ...]]:
        runs = [ran(app, *(word.replace("NAME", name) for word in words), *to) for words in WRITING]
        assert [code for code, _, _ in runs] == [0] * 9 + [1] * 4
        return [tuple(re.sub(r"es[op]_\w+|\w{24}|\S+\+00:00|…\w{4}", "*", str(part)) for part in run) for run in runs]

    assert told("here") == [
        tuple(str(part).replace("away", "here") for part in run) for run in told("away", "--url", URL)
    ]


def test_the_environment_chooses(app: typer.Typer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EARSHOT_ADMIN_URL", URL)
    monkeypatch.setenv("EARSHOT_DATABASE_URL", "postgresql://u:p@127.0.0.1:9/none")
    assert "Zoo" in ran(app, "org", "list")[1]
    code, _, said = ran(app, "org", "list", "--url", "")
    assert (code, "database does not answer" in said) == (1, True)


def test_a_key_is_needed(app: typer.Typer, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in "", KEY + "!":
        monkeypatch.setenv("EARSHOT_ADMIN_KEY", key)
        code, out, said = ran(app, "org", "list", "--url", URL)
        assert (code, out) == (1, "")
        assert "admin key" in said


@pytest.mark.parametrize("to", [[], ["--url", URL]])
def test_a_name_that_is_no_text(app: typer.Typer, to: list[str]) -> None:
    name = os.fsdecode(b"Zoo\xff")
    for words in (
        ["org", "create", name],
        ["org", "delete", name, "--yes"],
        ["project", "list", "--org", name],
        ["usage", "--project", name],
    ):
        result = CliRunner().invoke(app, [*words, *to])
        assert isinstance(result.exception, BadRequest | NotFound), words


def test_counting_again_is_for_what_is_here(app: typer.Typer) -> None:
    result = CliRunner().invoke(app, ["usage", "--recount", "--url", URL])
    assert result.exit_code == 2
    assert "no --url" in result.stderr


@pytest.mark.parametrize("to", [[], ["--url", URL]])
@pytest.mark.parametrize("arguments", [["org", "delete", "Zoo"], ["project", "delete", "apes"]])
def test_deletion_asks(app: typer.Typer, arguments: list[str], to: list[str]) -> None:
    refused = CliRunner().invoke(app, [*arguments, *to], input="n\n")
    assert refused.exit_code == 1
    assert "Delete" in refused.stderr
    assert "apes" in ran(app, "project", "list")[1]
