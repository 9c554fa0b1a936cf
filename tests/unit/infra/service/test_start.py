"""A start as a user sees it: what is wrong is one line, and keys are shown at the first start that comes through."""

from __future__ import annotations

import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import pytest

from infra.db import keyring
from tests.process import free_port, terminal
from tests.waiting import wait_for

pytestmark = pytest.mark.slow

KEY = re.compile(r"shown this once.*?(es[po]_\w+)")


@contextmanager
def serving(data: Path, stdout: int = subprocess.PIPE, /, **settings: str | int) -> Iterator[subprocess.Popen[str]]:
    """Run `earshot serve` and stop it."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("EARSHOT_")}
    chosen = {f"EARSHOT_{name.upper()}": str(value) for name, value in settings.items()}
    with subprocess.Popen(
        [sys.executable, "-m", "infra.cli", "serve"],
        env={**clean, "EARSHOT_DATA": str(data), "EARSHOT_BUNDLED_ENGINES": "0", "EARSHOT_PORT": "0", **chosen},
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        umask=0,
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def ended(data: Path, **settings: str | int) -> tuple[int, str, list[str]]:
    """Exit status, stdout, and the lines on stderr that are no log of a start that fails by itself."""
    with serving(data, **settings) as process:
        out, err = process.communicate(timeout=120)
        return process.returncode, out, [line for line in err.splitlines() if not line.startswith("{")]


def test_a_port_that_is_taken_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        status, out, lines = ended(tmp_path / "data", port=port)
    assert (status, out) == (1, "")
    assert lines == [f"earshot: EARSHOT_PORT: port {port} of 127.0.0.1 is taken by another program"]


def test_keys_are_shown_by_the_first_start_that_comes_through(tmp_path: Path) -> None:
    data = tmp_path / "data"
    away = f"kafka://127.0.0.1:{free_port()}"
    status, out, lines = ended(data, broker=away)
    assert (status, out) == (1, "")
    assert len(lines) == 1
    assert lines[0].startswith("earshot: EARSHOT_BROKER: Kafka at 127.0.0.1:")
    with welcomed(data) as said:
        keys = KEY.findall(said)
        # One that ends before it has noted that they were seen shows others the next time.
        wait_for(lambda: unseen(data) == 0)
    assert [key[:4] for key in keys] == ["esp_", "eso_"]
    assert "/dashboard/#/welcome/link_" in said
    with welcomed(data) as said:
        assert KEY.findall(said) == []
        open_to_others = [path for path in (data, *data.rglob("*")) if path.lstat().st_mode & 0o077]
        assert not open_to_others, "whatever the umask was"


def test_a_journal_gets_no_secret(tmp_path: Path) -> None:
    """Neither a key nor a link goes to what is no terminal; the next start at one shows the keys."""
    data = tmp_path / "data"
    with serving(data) as process:
        said = welcome(process)
    assert not re.search(r"es[po]_\w|/welcome/|link_", said)
    assert "earshot key rotate demo" in said
    assert "earshot link" in said
    assert unseen(data) == 0, "no key was made that nobody saw"
    with welcomed(data) as said:
        assert [key[:4] for key in KEY.findall(said)] == ["esp_", "eso_"]


def test_a_chosen_key_that_opens_nothing_is_not_given_to_paste(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with serving(data, bootstrap_project_key="the first key of the project") as process:
        assert 'EARSHOT_PROJECT_KEY="$EARSHOT_BOOTSTRAP_PROJECT_KEY"' in welcome(process)
    with serving(data, bootstrap_project_key="a later key of the project") as process:
        said = welcome(process)
    assert "EARSHOT_BOOTSTRAP_PROJECT_KEY opens nothing: the demo project has had another key." in said
    assert "EARSHOT_PROJECT_KEY=YOUR_PROJECT_KEY" in said
    assert "The demo project's key is" not in said


@pytest.mark.parametrize("hangup", [signal.SIG_DFL, signal.SIG_IGN])
def test_a_terminal_that_is_closed_stops_it_in_order(tmp_path: Path, hangup: signal.Handlers) -> None:
    """Unless it was started to outlive its terminal, as by nohup."""
    before = signal.signal(signal.SIGHUP, hangup)
    try:
        with serving(tmp_path / "data", log_format="json") as process:
            welcome(process)
            process.send_signal(signal.SIGHUP)
            if hangup is signal.SIG_IGN:
                with pytest.raises(subprocess.TimeoutExpired):
                    process.wait(1)
                process.terminate()
            _, err = process.communicate(timeout=60)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert process.returncode == 0
    assert '"service.stopped"' in err


def unseen(data: Path) -> int:
    """Count the keys that nobody was shown."""
    with closing(sqlite3.connect(data / "earshot.db")) as database:
        (count,) = database.execute("SELECT count(*) FROM keys WHERE shown = ?", [keyring.UNSEEN]).fetchone()
    return int(count)


END: Final = "A whole recording as a job"


@contextmanager
def welcomed(data: Path) -> Iterator[str]:
    """Run `earshot serve` at a terminal; yield its welcome."""
    log = data.parent / "terminal.log"
    log.write_text("")
    with terminal(log) as screen, serving(data, screen):
        wait_for(lambda: END in log.read_text(), 120)
        yield log.read_text()


def welcome(process: subprocess.Popen[str]) -> str:
    """Return the welcome that is written to a pipe."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if END in line:
            return "".join(lines)
    raise AssertionError(process.communicate()[1])
