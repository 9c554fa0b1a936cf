"""Commands for accounts work on the database that is there, say which, and make none by accident."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from infra.cli import accounts, usage
from topics.errors import ServiceError


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> typer.Typer:
    monkeypatch.chdir(tmp_path)
    made = typer.Typer()
    accounts.register(made)
    usage.register(made)
    return made


@pytest.mark.parametrize(
    "words",
    [
        ["org", "create", "Farm"],
        ["org", "list"],
        ["project", "create", "apes"],
        ["key", "rotate", "apes"],
        ["usage"],
        ["usage", "--recount"],
    ],
)
@pytest.mark.parametrize("data", [None, "elsewhere"])
def test_where_there_is_none_none_is_made(
    app: typer.Typer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], data: str | None
) -> None:
    if data is not None:
        monkeypatch.setenv("EARSHOT_DATA", data)
    result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, ServiceError)
    fault = str(result.exception)
    assert fault.startswith(f"there is no database at {tmp_path / (data or 'data') / 'earshot.db'}: set EARSHOT_DATA")
    assert "--new-database" in fault
    assert list(tmp_path.iterdir()) == []


def test_one_is_made_when_that_is_asked_for(app: typer.Typer, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["org", "create", "Farm", "--new-database"], catch_exceptions=False)
    assert result.exit_code == 0
    assert (tmp_path / "data" / "earshot.db").is_file()
    assert "Farm" in CliRunner().invoke(app, ["org", "list"]).stdout


def test_the_database_is_named_where_no_setting_names_it(
    app: typer.Typer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    CliRunner().invoke(app, ["org", "create", "Farm", "--new-database"])
    line = f"earshot: the database is {tmp_path}/data/earshot.db\n"
    assert CliRunner().invoke(app, ["org", "list"]).stderr == line
    monkeypatch.setenv("EARSHOT_DATA", "data")
    assert CliRunner().invoke(app, ["org", "list"]).stderr == ""
    monkeypatch.delenv("EARSHOT_DATA")
    monkeypatch.setenv("EARSHOT_DATABASE_URL", "sqlite:///data/earshot.db")
    result = CliRunner().invoke(app, ["org", "list"])
    assert (result.exit_code, result.stderr) == (0, "")
