"""Commands of `earshot` in processes that fork from one with all imports, which saves two thirds of a start.

Their environment may differ from the tests' only in settings of the service, because everything else was read before
the first fork. The first zygote of a service forks too, which saves half of the rest; one that replaces it starts as
everywhere, and so do those of the pages.
"""

import multiprocessing
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from infra import cli

# As `earshot serve` does: the process that forks has loaded BLAS by then.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
_FORKING: Final = multiprocessing.get_context("forkserver")
_FORKING.set_forkserver_preload(["tests.preloaded", __name__])


def can_fork(environment: Mapping[str, str]) -> bool:
    """Return whether a command with this environment can fork."""
    different = set(environment.items()) ^ set(os.environ.items())
    # pytest's own tell the phase of a test: a restart in its body differs from a start in its set-up.
    return all(name.startswith(("EARSHOT_", "OTEL_", "PYTEST_")) for name, _ in different)


class Forked:
    """A running command, with the part of `subprocess.Popen` that tests need."""

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        stdout: Path,
        stderr: Path,
        umask: int | None = None,
    ) -> None:
        outputs = str(stdout.absolute()), str(stderr.absolute())
        for path in (stdout, stderr):
            path.touch()  # A test may read them at once.
        # Daemon processes end with the tests.
        self._process = _FORKING.Process(
            target=_run, args=(list(arguments), dict(environment), os.getcwd(), outputs, umask), daemon=True
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


def _run(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    directory: str,
    outputs: tuple[str, str],
    umask: int | None,
) -> None:
    if umask is not None:
        os.umask(umask)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    tempfile.tempdir = None
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, path in enumerate(outputs, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666), number)
    sys.argv = ["earshot", *arguments]
    if arguments[0] == "serve":
        Standby()
    cli.main()


class Standby:
    """A child that forked before there were threads, and waits to become the zygote of this process."""

    def __init__(self) -> None:
        self._line, theirs = socket.socketpair()
        self._popen: Any = subprocess.Popen
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            self._line.close()
            _become_zygote(theirs)
        theirs.close()
        subprocess.Popen = self._start  # type: ignore[assignment, misc]

    def _start(self, command: Sequence[str], **options: Any) -> Any:
        """Start a process as `subprocess.Popen` does; for the zygote, let the child begin."""
        if not (command[1] == "-m" and command[2].startswith("streams.")):
            return self._popen(command, **options)
        subprocess.Popen = self._popen  # type: ignore[misc]
        start = msgspec.msgpack.encode((command[2], options["env"]))
        socket.send_fds(self._line, [start], [options["stdin"]])
        self._line.close()
        return self

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode


def _become_zygote(line: socket.socket) -> None:
    """Run the module that the parent names, as in a child of `subprocess.Popen`; end with the parent."""
    start, descriptors, _, _ = socket.recv_fds(line, 1 << 16, 1)
    if not start:
        os._exit(0)
    module, environment = msgspec.msgpack.decode(start, type=tuple[str, dict[str, str]])
    os.setsid()
    os.dup2(descriptors[0], 0)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.environ.clear()
    os.environ.update(environment)
    # Multiprocessing has replaced it.
    sys.stdin = os.fdopen(0, closefd=False)
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    sys.exit()
