"""The habits of command lines: the reader of a pipe may go, a service is looked for where it was started."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from app.client import Event, Tag
from infra.cli import detect, kafka, listen, remote, tables
from infra.examples import RECORDING
from infra.kafka import launcher
from tests.process import free_port
from topics.errors import EarshotError


@pytest.mark.parametrize("words", [["config", "--markdown"], ["config"], ["--help"]])
def test_a_command_ends_quietly_with_the_reader_of_its_output(words: list[str]) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "infra.cli", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == -signal.SIGPIPE


@pytest.mark.parametrize(
    ("environment", "url"),
    [
        ({}, "http://127.0.0.1:8000"),
        ({"EARSHOT_PORT": "8411"}, "http://127.0.0.1:8411"),
        ({"EARSHOT_PORT": "0"}, "http://127.0.0.1:8000"),
        ({"EARSHOT_PORT": "", "EARSHOT_HOST": "0.0.0.0"}, "http://127.0.0.1:8000"),
        ({"EARSHOT_PORT": "8411", "EARSHOT_HOST": "192.168.1.5"}, "http://192.168.1.5:8411"),
        ({"EARSHOT_HOST": "::1"}, "http://[::1]:8000"),
    ],
)
def test_a_service_is_looked_for_where_it_was_started(environment: dict[str, str], url: str) -> None:
    assert remote.local_service(environment) == url


def test_a_service_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    app = typer.Typer()
    detect.register(app)

    port = free_port()
    monkeypatch.setenv("EARSHOT_PORT", str(port))
    monkeypatch.setenv("EARSHOT_PROJECT_KEY", "any")
    result = CliRunner().invoke(app, [str(RECORDING)])
    assert isinstance(result.exception, EarshotError)
    assert str(result.exception).startswith(f"no answer from http://127.0.0.1:{port}: ")
    assert "--url or EARSHOT_URL" in str(result.exception)


@pytest.mark.parametrize(
    ("options", "directory"),
    [
        ([], "data/kafka"),
        (["--nodes", "1"], "data/kafka"),
        (["--nodes", "3"], "data/kafka-3"),
        (["--nodes", "3", "--data", "mine"], "mine"),
    ],
)
def test_clusters_of_another_size_have_another_directory(
    monkeypatch: pytest.MonkeyPatch, options: list[str], directory: str
) -> None:
    class Cluster(launcher.KafkaCluster):
        def start(self) -> None:
            started.append(self._directory)
            raise KeyboardInterrupt

    started: list[Path] = []
    monkeypatch.setattr(launcher, "KafkaCluster", Cluster)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    app = typer.Typer()
    kafka.register(app)
    assert CliRunner().invoke(app, options).exit_code == 0
    assert started == [Path(directory).absolute()]


def test_long_cells_are_whole_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    tables.print_columns([["name", "text"], ["한국어", "word " * 60], ["[bold]", "a"]])
    lines = capsys.readouterr().out.splitlines()
    assert [line.index("word") for line in lines if "word" in line] == [5]
    assert lines[0] == "name    text"
    assert lines[2] == "[bold]  a"
    assert len(lines) == 3


@pytest.mark.parametrize(
    ("whole", "lines"),
    [
        (
            False,
            [
                {"start_time": 0, "end_time": 1, "tags": [{"name": "Siren", "probability": 0.5}]},
                {"start_time": 1, "end_time": 2, "tags": [{"name": "Others", "probability": 0.9}]},
            ],
        ),
        (True, [{"name": "Siren", "start": 0, "end": 1, "probability": 0.5}]),
    ],
)
def test_what_is_heard_for_programs(whole: bool, lines: list[dict[str, object]]) -> None:
    events = [Event(0, 1, (Tag("Siren", 0.5),)), Event(1, 2, (Tag("Others", 0.9),))]
    assert [json.loads(line) for line in listen._as_json(iter(events), whole)] == lines
