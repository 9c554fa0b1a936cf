"""Commands around a running service: its nodes, engines and documents, and command-line conventions."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from app.admin.admin_bodies import LETTER, NODE, NODES, NodeReport, NodesReport
from infra.cli import build, engines, remote, tables
from infra.cli.administration import on_service
from infra.engines import serving
from infra.engines.speech.speech_models import SpeechSettings
from infra.errors import WrongSetting
from tests.ports import free_port
from tests.unit.infra.conftest import app_of
from topics.errors import BadRequest, Unauthorized
from topics.ports.nodes import DeadLetter, PartitionFacts, StandbyFacts, TopicPlace

pytestmark = pytest.mark.slow

WELL = NodesReport("good", 1, [], [NodeReport(NODE.url, "good", [], NODE)])


def asked(monkeypatch: pytest.MonkeyPatch, report: NodesReport, *arguments: str) -> tuple[int, str]:
    urls: list[str] = []

    def client(url: str) -> Letters:
        urls.append(url)
        return Letters(report)

    monkeypatch.setattr("infra.cli.administration.admin_client", client)
    done = CliRunner().invoke(build(), ["cluster", "--url", "http://barn:8000", *arguments])
    assert urls == ["http://barn:8000"]
    return done.exit_code, done.stdout


def test_healthy_nodes_print_as_table(monkeypatch: pytest.MonkeyPatch) -> None:
    status, printed = asked(monkeypatch, WELL)
    assert (status, len(printed.splitlines())) == (0, 6)
    assert "yamnet@e1f174ba-71e54a" in printed
    assert printed.splitlines()[3].split() == ["0", "http://barn:8000", "serving", "0", "0", "-"]
    assert printed.splitlines()[5].split() == ["4711", "http://barn:8000", "busy", "35%", "3", "0", "0", "all"]


def test_unhealthy_nodes_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    status, printed = asked(monkeypatch, msgspec.structs.replace(NODES, missing=[3, 4]))
    assert status == 1
    _, _, silent, _, _, _, _, *found = printed.splitlines()
    assert silent.split()[:4] == ["http://shed:8000", "-", "bad", "-"]
    assert found[0] == "bad: no node serves partition 3, 4"
    assert found[-1] == "bad: http://shed:8000: it does not answer"


def test_cluster_shows_owners_standbys_and_what_each_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    coming = PartitionFacts(1, "coming", 3, [TopicPlace("t", 5, 7, 2.5), TopicPlace("u", 5, 1, 0.1)], "its changelog")
    barn = msgspec.structs.replace(NODE, partitions=[*NODE.partitions, coming], standbys=[])
    standbys = [StandbyFacts(0, 12, 0.4), StandbyFacts(1, 0), StandbyFacts(2, 0, 0.0, "its table is not open")]
    shed = msgspec.structs.replace(NODE, partitions=[], standbys=standbys)
    nodes = [NodeReport(url, "good", [], node) for url, node in (("http://barn", barn), ("http://shed", shed))]
    _, printed = asked(monkeypatch, NodesReport("bad", 3, [1, 2], nodes))
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    assert lines[1:3] == [
        f"http://barn {NODE.version} good 2 0 3 1 1 {NODE.models[0]}",
        f"http://shed {NODE.version} good 0 3 3 1 1 {NODE.models[0]}",
    ]
    assert lines[4:7] == [
        "0 http://barn serving 0 0 http://shed (12 behind, 0.4 s)",
        "1 http://barn coming 8 2.5 http://shed its changelog",
        "2 - - - - http://shed (its table is not open) an owner that answers",
    ]


def test_cluster_prints_json(monkeypatch: pytest.MonkeyPatch) -> None:
    status, printed = asked(monkeypatch, NODES, "--json")
    assert status == 1
    assert msgspec.json.decode(printed, type=NodesReport) == NODES


def test_cluster_requires_admin_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EARSHOT_ADMIN_KEY", raising=False)
    done = CliRunner().invoke(build(), ["cluster", "--url", "http://127.0.0.1:1"])
    assert isinstance(done.exception, Unauthorized)


class Letters:
    """The client of a service with dead letters."""

    def __init__(self, report: NodesReport) -> None:
        self.report = report

    async def __aenter__(self) -> Letters:
        return self

    async def __aexit__(self, *error: object) -> None: ...

    async def nodes(self) -> NodesReport:
        return self.report

    async def dead_letter(self, reference: str) -> DeadLetter:
        assert reference == PLACE
        return LETTER

    async def put_back(self, reference: str) -> int:
        assert reference == PLACE
        return 29


PLACE = "earshot.session.command.v1/0/17"


def lettered(monkeypatch: pytest.MonkeyPatch, report: NodesReport, *arguments: str) -> tuple[int, list[str], str]:
    monkeypatch.setattr("infra.cli.administration.admin_client", lambda url: Letters(report))
    done = CliRunner().invoke(build(), ["dead-letters", *arguments, "--url", "http://barn:8000"])
    return done.exit_code, [" ".join(line.split()) for line in done.stdout.splitlines()], done.stderr


def test_dead_letters_are_listed_shown_and_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    status, lines, err = lettered(monkeypatch, WELL, "list")
    assert (status, lines, err) == (0, ["record at cause", f"{PLACE} 2026-11-22T06:51:02+00:00 RecordError: ..."], "")
    status, lines, _ = lettered(monkeypatch, WELL, "show", PLACE)
    assert (status, lines[-2:]) == (0, ["key 4bG4kCD3", "bytes 2"])
    status, lines, _ = lettered(monkeypatch, WELL, "show", PLACE, "--json")
    assert msgspec.json.decode("".join(lines))["value"] == "AZM="
    status, lines, _ = lettered(monkeypatch, WELL, "put-back", PLACE)
    assert (status, lines[:2]) == (0, [f"record {PLACE}", "offset 29"])


def test_list_of_dead_letters_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert NODE.parked is not None
    many = msgspec.structs.replace(NODE, parked=msgspec.structs.replace(NODE.parked, count=4))
    silent = NodeReport("http://shed:8000", "bad", [], None)
    report = NodesReport("bad", 1, [], [NodeReport(NODE.url, "good", [], many), silent])
    status, lines, err = lettered(monkeypatch, report, "list")
    assert (status, len(lines)) == (1, 2)
    assert err.splitlines() == [
        "earshot: 3 older ones are not listed",
        "earshot: dead letters of http://shed:8000 are not known; see `earshot cluster`",
    ]


KEY = "a-key-of-the-engines"


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The keys with which servers would have been started."""
    keys: list[str | None] = []

    def serve(listener: socket.socket, speech: SpeechSettings, key: str | None) -> None:
        assert speech == SpeechSettings("whisper-base", None, 4, 300.0)
        listener.close()
        keys.append(key)

    monkeypatch.setattr(serving, "serve", serve)
    monkeypatch.setattr("infra.logs.configure", lambda *_: None)
    return keys


def called(host: str) -> BaseException | None:
    app = app_of(engines)
    return CliRunner().invoke(app, ["--host", host, "--port", str(free_port())]).exception


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_engines_on_localhost_need_no_key(host: str, served: list[str | None]) -> None:
    assert called(host) is None
    assert served == [None]


def test_engines_beyond_localhost_require_valid_key(
    served: list[str | None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    error = called("0.0.0.0")
    assert isinstance(error, WrongSetting)
    assert str(error).startswith("EARSHOT_ENGINES_KEY: must be set to listen at 0.0.0.0")
    monkeypatch.setenv("EARSHOT_ENGINES_KEY", "short")
    error = called("0.0.0.0")
    assert isinstance(error, WrongSetting)
    assert str(error) == "EARSHOT_ENGINES_KEY: needs at least 20 characters"
    # The client settings reject keys with spaces.
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


@pytest.mark.parametrize("words", ["config --markdown", "config", "--help", "config --markdown >/dev/full"])
def test_command_dies_silently_of_broken_pipe_and_reports_full_disk(words: str) -> None:
    unread, output = os.pipe()
    os.close(unread)
    command = f"exec {sys.executable} -m infra.cli {words}"
    done = subprocess.run(command, shell=True, stdout=output, stderr=subprocess.PIPE, text=True)
    os.close(output)
    full = 1, "earshot: standard output: No space left on device\n"
    assert (done.returncode, done.stderr) == (full if "full" in words else (128 + signal.SIGPIPE, ""))


def test_command_dies_silently_of_broken_pipe_in_any_thread() -> None:
    program = (
        "import sys, threading\n"
        "from infra.cli.output import watch_output\n"
        "watch_output()\n"
        "sys.stdin.read()\n"
        "threading.Thread(target=print, args=['a line'], kwargs={'flush': True}).start()\n"
        "threading.Event().wait()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = None
        assert process.communicate(timeout=60)[1] == b""
    assert process.returncode == 128 + signal.SIGPIPE


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
def test_local_url_follows_host_and_port(environment: dict[str, str], url: str) -> None:
    assert remote.local_service(environment) == url


@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", ">&-", "2>&-", ""])
def test_closed_streams_are_opened_for_children_too(closed: str, tmp_path: Path) -> None:
    program = (
        "import os, sys\n"
        "from infra.cli.output import open_closed_streams\n"
        "open_closed_streams()\n"
        "print(sys.stdin.read(), file=sys.stderr)\n"
        "print('', flush=True)\n"
        "open(sys.argv[1], 'w').write(str([os.get_inheritable(number) for number in range(3)]))\n"
    )
    shell = ["sh", "-c", f'exec "$@" {closed}', "sh"]
    subprocess.run(
        [*shell, sys.executable, "-c", program, str(tmp_path / "said")], stdin=subprocess.DEVNULL, check=True
    )
    assert (tmp_path / "said").read_text() == "[True, True, True]"


def test_long_cells_are_not_truncated_in_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    tables.print_columns([["name", "text"], ["한국어", "word " * 60], ["[bold]", "a"]])
    lines = capsys.readouterr().out.splitlines()
    assert [line.index("word") for line in lines if "word" in line] == [5]
    assert lines[0] == "name    text"
    assert lines[2] == "[bold]  a"
    assert len(lines) == 3


def test_record_that_is_not_utf_8_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EARSHOT_ADMIN_KEY", "a key of twenty letters")
    with pytest.raises(BadRequest, match="not UTF-8"):
        on_service("http://barn:8000", lambda client: client.dead_letter("\udcff/0/1"))
