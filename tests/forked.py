"""Commands of `earshot` in processes that fork from one with all imports, which saves two thirds of a start.

Their environment may differ from the tests' only in settings of the service, because everything else was read before
the first fork.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from infra import cli

_FORKING: Final = multiprocessing.get_context("forkserver")
_FORKING.set_forkserver_preload(["tests.preloaded", __name__])


def can_fork(environment: Mapping[str, str]) -> bool:
    """Return whether a command with this environment can fork."""
    different = set(environment.items()) ^ set(os.environ.items())
    return all(name.startswith("EARSHOT_") for name, _ in different)


class Forked:
    """A running command, with the part of `subprocess.Popen` that tests need."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], stdout: Path, stderr: Path) -> None:
        outputs = str(stdout.absolute()), str(stderr.absolute())
        for path in (stdout, stderr):
            path.touch()  # A test may read them at once.
        # Daemon processes end with the tests.
        self._process = _FORKING.Process(
            target=_run, args=(list(arguments), dict(environment), os.getcwd(), outputs), daemon=True
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("earshot", timeout or 0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _run(arguments: Sequence[str], environment: Mapping[str, str], directory: str, outputs: tuple[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    tempfile.tempdir = None
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, path in enumerate(outputs, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666), number)
    sys.argv = ["earshot", *arguments]
    cli.main()
