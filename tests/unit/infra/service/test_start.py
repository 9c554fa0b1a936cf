"""A start as a user sees it: what is wrong is one line, and keys are shown at the first start that comes through."""

from __future__ import annotations

import os
import re
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from infra.db import keyring
from tests.process import free_port
from tests.waiting import wait_for

pytestmark = pytest.mark.slow

KEY = re.compile(r"es[po]_\w+")


@contextmanager
def serving(data: Path, **settings: object) -> Iterator[subprocess.Popen[str]]:
    """Run `earshot serve` and stop it."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("EARSHOT_")}
    chosen = {f"EARSHOT_{name.upper()}": str(value) for name, value in settings.items()}
    with subprocess.Popen(
        [sys.executable, "-m", "infra.cli", "serve"],
        env={**clean, "EARSHOT_DATA": str(data), "EARSHOT_BUNDLED_ENGINES": "0", "EARSHOT_PORT": "0", **chosen},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        umask=0,
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def ended(data: Path, **settings: object) -> tuple[int, str, list[str]]:
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
    with serving(data) as process:
        keys = shown(process)
        # One that ends before it has noted that they were seen shows others the next time.
        wait_for(lambda: unseen(data) == 0)
    assert [key[:4] for key in keys] == ["esp_", "eso_"]
    with serving(data) as process:
        assert shown(process) == []
        open_to_others = [path for path in (data, *data.rglob("*")) if path.lstat().st_mode & 0o077]
        assert not open_to_others, "whatever the umask was"


def unseen(data: Path) -> int:
    """Count the keys that nobody was shown."""
    with closing(sqlite3.connect(data / "earshot.db")) as database:
        (count,) = database.execute("SELECT count(*) FROM keys WHERE shown = ?", [keyring.UNSEEN]).fetchone()
    return int(count)


def shown(process: subprocess.Popen[str]) -> list[str]:
    """Wait for the welcome; return the keys that it shows for the first time."""
    assert process.stdout is not None
    keys = []
    for line in process.stdout:
        if "shown this once" in line:
            keys += KEY.findall(line)
        if "A whole recording as a job" in line:
            return keys
    raise AssertionError(process.communicate()[1])
