"""`earshot engines`: whoever can reach it needs its key, but on the machine itself."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from infra.cli import engines
from infra.engines import serving
from infra.engines.speech_models import SpeechSettings
from infra.errors import WrongSetting
from tests.process import free_port

KEY = "a-key-of-the-engines"


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The keys with which servers were started, none of which serves."""
    keys: list[str | None] = []

    def serve(listener: socket.socket, speech: SpeechSettings, key: str | None) -> None:
        assert speech == SpeechSettings("whisper-base", None, 4, 300.0)
        listener.close()
        keys.append(key)

    monkeypatch.setattr(serving, "serve", serve)
    monkeypatch.setattr("infra.logs.configure", lambda *_: None)
    return keys


def called(host: str) -> BaseException | None:
    app = typer.Typer()
    engines.register(app)
    return CliRunner().invoke(app, ["--host", host, "--port", str(free_port())]).exception


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_on_this_machine_no_key_is_needed(host: str, served: list[str | None]) -> None:
    assert called(host) is None
    assert served == [None]


def test_beyond_it_one_is(served: list[str | None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    error = called("0.0.0.0")
    assert isinstance(error, WrongSetting)
    assert str(error).startswith("EARSHOT_ENGINES_KEY: must be set to listen at 0.0.0.0")
    monkeypatch.setenv("EARSHOT_ENGINES_KEY", "short")
    error = called("0.0.0.0")
    assert isinstance(error, WrongSetting)
    assert str(error) == "EARSHOT_ENGINES_KEY: needs at least 20 characters"
    # The settings of those who call it take none with spaces.
    monkeypatch.setenv("EARSHOT_ENGINES_KEY", KEY.replace("-", " "))
    assert "must have no spaces" in str(called("0.0.0.0"))
    assert served == []
    monkeypatch.setenv("EARSHOT_ENGINES_KEY", KEY)
    assert called("0.0.0.0") is None
    monkeypatch.delenv("EARSHOT_ENGINES_KEY")
    (tmp_path / "key").write_text(KEY)
    monkeypatch.setenv("EARSHOT_ENGINES_KEY_FILE", str(tmp_path / "key"))
    assert called("0.0.0.0") is None
    assert served == [KEY, KEY]
