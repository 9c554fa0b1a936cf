"""Secrets by file: every secret setting has one, and what is wrong with a file is one line without its content."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from infra.errors import variable
from infra.settings import SECRETS, load

KEY = "a-secret-of-many-letters"


def test_every_secret_may_come_by_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {"admin_key", "bootstrap_org_key", "speech_key", "kafka_sasl_password", "database_url"} <= {*SECRETS}
    for field in SECRETS:
        (tmp_path / field).write_text("postgresql://u:p@h/n" if field == "database_url" else f"{KEY}-{field}\n")
        monkeypatch.setenv(f"{variable(field)}_FILE", str(tmp_path / field))
    monkeypatch.setenv("EARSHOT_KAFKA_SECURITY_PROTOCOL", "sasl_ssl")
    monkeypatch.setenv("EARSHOT_KAFKA_SASL_MECHANISM", "PLAIN")
    monkeypatch.setenv("EARSHOT_KAFKA_SASL_USERNAME", "u")
    for name in ("certificate", "key"):
        monkeypatch.setenv(f"EARSHOT_KAFKA_SSL_{name.upper()}_LOCATION", "/a.pem")
    settings = load()
    assert settings.database == "postgresql+asyncpg://u:p@h/n"
    assert sorted(settings.secrets) == sorted(f"{KEY}-{field}" for field in SECRETS if field != "database_url")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, "EARSHOT_ADMIN_KEY_FILE: {} cannot be read: No such file or directory"),
        (b"", "EARSHOT_ADMIN_KEY_FILE: {} is empty"),
        (b" \n", "EARSHOT_ADMIN_KEY_FILE: {} is empty"),
        (b"secret\nsecret\n", "EARSHOT_ADMIN_KEY_FILE: {} must hold one line"),
        (b"secret" * 20_000, "EARSHOT_ADMIN_KEY_FILE: {} must hold one line"),
        (b"secret\xff", "EARSHOT_ADMIN_KEY_FILE: {} is not UTF-8"),
        (b"secret", "EARSHOT_ADMIN_KEY: needs at least 20 characters"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line(
    content: bytes | None,
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_bytes(content)
    monkeypatch.setenv("EARSHOT_ADMIN_KEY_FILE", str(file))
    with pytest.raises(SystemExit) as stopped:
        load()
    assert stopped.value.code == 2
    assert capsys.readouterr().err == f"earshot: {line.format(file)}\n"


def test_both_are_one_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "key").write_text(KEY)
    monkeypatch.setenv("EARSHOT_ADMIN_KEY_FILE", str(tmp_path / "key"))
    monkeypatch.setenv("EARSHOT_ADMIN_KEY", "")
    assert load().admin_key is not None
    monkeypatch.setenv("EARSHOT_ADMIN_KEY", f"{KEY}2")
    with pytest.raises(SystemExit) as stopped:
        load()
    assert stopped.value.code == 2
    both = "EARSHOT_ADMIN_KEY: is set, and so is EARSHOT_ADMIN_KEY_FILE; set one of them"
    assert capsys.readouterr().err == f"earshot: {both}\n"


def test_a_line_to_paste_shows_no_key_in_a_list_of_processes() -> None:
    from infra.cli.serve import WELCOME

    key = "esp_0123"
    text = WELCOME.format(url="http://here", key_lines="", dashboard="", key=key, recording="a.flac", earshot="earshot")
    lines = [line.strip() for line in text.splitlines() if key in line]
    assert lines == [f"export EARSHOT_URL=http://here EARSHOT_PROJECT_KEY={key}"]
    # A variable is as plain as its value, where it is the argument of a program; `echo` is the shell's own.
    assert not re.search(r"(curl|earshot)[^|]*EARSHOT_PROJECT_KEY", text.split("\n", 5)[-1])
