"""How the process before this one ended: killed from outside, or by a crash, or with the machine's memory."""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from infra.service import lives
from infra.service.lives import CRASH, LIVES, MOST_KILLED, begin_life
from streams.folding.lives import Lives

LIFE = """
import ctypes, sys, time
from pathlib import Path
from infra.service.lives import begin_life

with begin_life(Path(sys.argv[1])) as life:
    print("life", life.this, flush=True)
    sys.stdin.read()
    ctypes.string_at(0)
"""


def live(data: Path, ended_by: signal.Signals) -> str:
    """Begin a life in a process of its own, and end it; return its name."""
    command = [sys.executable, "-c", LIFE, str(data)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with child:
        assert child.stdout is not None
        # What is told of the life before may come first.
        life = next(line.split()[1] for line in child.stdout if line.startswith("life "))
        if ended_by is signal.SIGSEGV:
            child.communicate()
        else:
            child.send_signal(ended_by)
    assert child.returncode == -ended_by
    return life


def known(data: Path) -> Lives:
    """Return what is known in a life that ends in order."""
    with begin_life(data) as begun:
        return begun


@pytest.fixture(autouse=True)
def traced() -> object:
    """Have crashes traced again as before: there is one handler for a process."""
    yield
    if sys.__stderr__ is not None:
        faulthandler.enable(sys.__stderr__)


def test_lives_that_were_killed_are_known_and_those_that_crashed_are_not_among_them(tmp_path: Path) -> None:
    assert known(tmp_path).killed == frozenset()
    ends = (signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, signal.SIGABRT)
    killed, crashed, ended, aborted = (live(tmp_path, end) for end in ends)
    begun = known(tmp_path)
    assert begun.killed >= {killed, ended}
    assert not begun.killed & {crashed, aborted, begun.this}
    assert begun.was_killed(f"{killed}0123")
    assert not begun.was_killed(f"{crashed}0123")
    assert not begun.was_killed("r-1")
    assert begun.name_run().startswith(begun.this)
    assert begun.name_run() != begun.name_run()


def test_a_trace_is_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    live(tmp_path, signal.SIGSEGV)
    known(tmp_path)
    assert "service.crashed" in (told := capsys.readouterr().out)
    assert "Segmentation fault" in told
    known(tmp_path)
    assert "service.crashed" not in capsys.readouterr().out


def test_a_machine_without_memory_counts_unless_it_was_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = known(tmp_path).this
    monkeypatch.setattr(lives, "_out_of_memory", lambda: 10**9)
    second = known(tmp_path)
    assert first not in second.killed
    monkeypatch.setattr(lives, "_out_of_memory", lambda: 0)
    monkeypatch.setattr(lives, "_boot", lambda: "another")
    assert known(tmp_path).killed == {second.this}


def test_this_machine_tells_how_it_is() -> None:
    if not Path("/proc/vmstat").exists():
        pytest.skip("not Linux")
    assert lives._boot() == lives._boot() != ""
    assert lives._out_of_memory() >= 0


@pytest.mark.parametrize("damage", [b"", b"{", b'{"life": 3}'])
def test_files_that_are_damaged_say_nothing(tmp_path: Path, damage: bytes) -> None:
    known(tmp_path)
    (tmp_path / LIVES).write_bytes(damage)
    assert known(tmp_path).killed == frozenset()
    (tmp_path / CRASH).unlink()
    assert known(tmp_path).killed == frozenset()


def test_what_cannot_be_kept_keeps_nothing_from_starting(tmp_path: Path) -> None:
    (tmp_path / LIVES).mkdir()
    assert known(tmp_path).killed == frozenset()


def test_few_lives_are_remembered(tmp_path: Path) -> None:
    names = [known(tmp_path).this for _ in range(MOST_KILLED + 3)]
    assert known(tmp_path).killed == set(names[-MOST_KILLED:])
    assert (tmp_path / LIVES).stat().st_size < os.sysconf("SC_PAGE_SIZE")
