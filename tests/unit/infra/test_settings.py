"""Settings: defaults, one line for each wrong one, and no word of what is secret."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from infra.cli.settings import markdown
from infra.settings import MIB, Settings, load, typing_errors
from infra.urls import Embedded, Kafka
from tests.conftest import ROOT

PAGE = ROOT / "docs" / "settings.md"


def test_defaults_are_one_machine_and_no_broker() -> None:
    settings = load()
    assert (settings.host, settings.port, settings.model, settings.partition_count) == ("127.0.0.1", 8000, None, 4)
    assert settings.log == Embedded(Path("data/log"))
    assert settings.database == "sqlite+aiosqlite:///data/earshot.db"
    assert settings.workers >= 1


def test_the_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EARSHOT_BROKER", "kafka://a:9092,b:9092")
    monkeypatch.setenv("EARSHOT_DATA", "/srv/earshot")
    monkeypatch.setenv("EARSHOT_DATABASE_URL", "postgres://u:p@h/n")
    monkeypatch.setenv("EARSHOT_LOG_LEVEL", "WARNING")
    monkeypatch.setenv("EARSHOT_BOOTSTRAP_PROJECT_KEY", "any twenty characters")
    monkeypatch.setenv("EARSHOT_PORT", "")
    settings = load()
    assert settings.log == Kafka(("a:9092", "b:9092"))
    assert settings.partition_count == 16
    assert settings.database == "postgresql+asyncpg://u:p@h/n"
    assert settings.log_level == "warning"
    assert settings.port == 8000
    assert settings.bootstrap_project_key is not None
    assert settings.bootstrap_project_key.get_secret_value() == "any twenty characters"


def test_paths_follow_the_data_directory(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path, partitions=8)
    assert settings.log == Embedded(tmp_path / "log")
    assert settings.database == f"sqlite+aiosqlite:///{tmp_path}/earshot.db"
    assert settings.partition_count == 8


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError):
        Settings().port = 1


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, 5 * MIB),
        ({"broker": "kafka://here:9092"}, MIB),
        ({"queue_bytes": 2 * MIB}, MIB),
        ({"body_bytes": 8 * MIB}, MIB),
        ({"chunk_limit": 2 * MIB}, 2 * MIB),
        ({"chunk_limit": 2 * MIB, "broker": "kafka://here:9092"}, 2 * MIB),
    ],
    ids=str,
)
def test_chunks_of_the_vendor_s_clients_fit_where_there_is_room(given: dict[str, Any], expected: int) -> None:
    assert Settings(**given).chunk_bytes == expected


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("EARSHOT_PORT", "http", "integer"),
        ("EARSHOT_DATABASE_URL", "mysql://u:secret-word@h/n", "sqlite:// or postgresql://"),
        ("EARSHOT_BOOTSTRAP_PROJECT_KEY", "secret-word", "at least 20"),
        ("EARSHOT_BOOTSTRAP_ORG_KEY", "secret-word with a \x07 bell", "printable"),
        ("EARSHOT_QUEUE_BYTES", "1000000", "must hold the largest chunk"),
        ("EARSHOT_POLL_SECONDS", "nan", "less than or equal to 300"),
        ("EARSHOT_LOG_LEVEL", "loud", "'debug', 'info', 'warning' or 'error'"),
        ("EARSHOT_SPEECH_URL", "ftp://here/secret-word", "http:// or https:// URL"),
        ("EARSHOT_TRANSLATION_URL", "https://me:secret-word@here", "a key has its own setting"),
        ("EARSHOT_CAPTION_KEY", "secret-word ", "without spaces"),
        ("EARSHOT_ADMIN_LISTEN", "[::1]:0", "needs EARSHOT_ADMIN_KEY too"),
    ],
)
def test_a_wrong_setting_is_one_line_and_exit_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str, why: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as stopped:
        load()
    (line,) = capsys.readouterr().err.splitlines()
    assert stopped.value.code == 2
    assert line.startswith(f"earshot: {name}: ")
    assert why in line
    assert "secret-word" not in line


def test_several_wrong_settings_are_a_line_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EARSHOT_PORT", "x")
    monkeypatch.setenv("EARSHOT_WORKERS", "x")
    with pytest.raises(SystemExit):
        load()
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[1].strip() for line in lines] == ["EARSHOT_PORT", "EARSHOT_WORKERS"]


def test_the_same_key_twice_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in "EARSHOT_BOOTSTRAP_PROJECT_KEY", "EARSHOT_BOOTSTRAP_ORG_KEY":
        monkeypatch.setenv(name, "one key for both of them")
    with pytest.raises(SystemExit):
        load()
    assert "EARSHOT_BOOTSTRAP_ORG_KEY: must differ" in capsys.readouterr().err


def test_a_typing_error_is_a_warning(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("EARSHOT_PORTT", "1")
    assert load().port == 8000
    assert capsys.readouterr().err == "earshot: EARSHOT_PORTT is not a setting; did you mean EARSHOT_PORT?\n"


def test_other_variables_are_none_of_our_business() -> None:
    assert typing_errors(["PATH", "EARSHOT_PORT", "EARSHOT_TEST_POSTGRES_URL"]) == []
    assert typing_errors(["EARSHOT_QQQ"]) == ["EARSHOT_QQQ is not a setting"]


def test_nothing_secret_is_in_the_repr() -> None:
    settings = Settings(
        database_url="postgresql://u:secret-word@h/n",
        bootstrap_org_key="a secret-word of 20 letters",  # type: ignore[arg-type]
    )
    assert "secret-word" not in repr(settings) + str(settings)


def test_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EARSHOT_SPEECH_URL", "http://[::1]:8081/v1?beam=5")
    monkeypatch.setenv("EARSHOT_SPEECH_KEY", "sk-secret-word")
    monkeypatch.setenv("EARSHOT_BUNDLED_ENGINES", "false")
    settings = load()
    assert (settings.speech_url, settings.caption_url) == ("http://[::1]:8081/v1?beam=5", None)
    assert settings.speech_key is not None
    assert settings.speech_key.get_secret_value() == "sk-secret-word"
    assert (settings.bundled_engines, settings.speech_timeout, settings.caption_timeout) == (False, 30, 120)
    assert "secret-word" not in repr(settings)


@pytest.mark.parametrize("field", Settings.model_fields)
def test_every_setting_has_a_sentence(field: str) -> None:
    about = Settings.model_fields[field].description or ""
    assert about.endswith(".")
    assert "|" not in about


def test_the_page_of_settings_is_what_the_code_says() -> None:
    _, _, rest = PAGE.read_text(encoding="utf-8").partition("<!-- settings -->\n")
    table, _, _ = rest.partition("\n<!-- /settings -->")
    assert table == markdown(), "put what `earshot config --markdown` prints between the marks of docs/settings.md"
