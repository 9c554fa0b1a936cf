"""The service as a separate process, on either log: started as a user would, killed as an accident would."""

from __future__ import annotations

import os
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx2
import psutil

from infra.service.lives import CRASH
from tests.forked import Forked, can_fork
from tests.ports import free_port
from tests.versions import python

KEY = "tests-project-key-0123456789"
ORG_KEY = "tests-organization-key-0123456789"
ADMIN_KEY = "tests-administrator-key-0123456789"


#: A request on its own connection, with a timeout for a busy machine.
ask: Final = partial(httpx2.request, timeout=120)


def living(process: psutil.Process, recursive: bool = False) -> list[psutil.Process]:
    """Return the children of a process, or all its descendants, without zombies."""
    found = []
    for child in process.children(recursive):
        with suppress(psutil.NoSuchProcess):
            if child.status() != psutil.STATUS_ZOMBIE:
                found.append(child)
    return found


@contextmanager
def terminal(log: Path) -> Iterator[int]:
    """Yield the file descriptor of a terminal for a process; its output is appended to a file."""
    ours, theirs = pty.openpty()

    def copy() -> None:
        with log.open("ab", buffering=0) as file, suppress(OSError):  # EIO: the last process has closed it
            while data := os.read(ours, 4096):
                file.write(data.replace(b"\r\n", b"\n"))

    copying = threading.Thread(target=copy)
    copying.start()
    try:
        yield theirs
    finally:
        os.close(theirs)
        copying.join()
        os.close(ours)


class ServiceProcess:
    """`earshot serve` with its own port and data directory."""

    def __init__(self, data: Path, **settings: str | int | float) -> None:
        self.data = data
        # On Kafka, lanes have the ports after it.
        self.port = free_port(int(settings.get("lanes", 0)))
        self.url = f"http://127.0.0.1:{self.port}"
        self.key = KEY
        self.log = data.parent / f"{data.name}.log"
        self.process: subprocess.Popen[bytes] | Forked | None = None
        #: The source tree that it runs, None for this one.
        self.tree: Path | None = None
        clean = {name: value for name, value in os.environ.items() if not name.startswith("EARSHOT_")}
        self.environment = {
            **clean,
            "EARSHOT_PORT": str(self.port),
            "EARSHOT_DATA": str(data),
            "EARSHOT_BUNDLED_ENGINES": "false",
            # Otherwise it follows the number of cores.
            "EARSHOT_LANES": "1",
            "EARSHOT_BOOTSTRAP_PROJECT_KEY": KEY,
            "EARSHOT_BOOTSTRAP_ORG_KEY": ORG_KEY,
            "EARSHOT_ADMIN_KEY": ADMIN_KEY,
            **{f"EARSHOT_{name.upper()}": str(value) for name, value in settings.items()},
        }

    def start(self, wait: float = 120.0) -> ServiceProcess:
        """Start, and wait up to `wait` seconds until requests are served; 0 does not wait."""
        if self.tree is None and can_fork(self.environment):
            self.process = Forked(["serve"], self.environment, self.log, self.log)
        else:
            with self.log.open("ab") as log:
                # Python looks for modules in the current directory first.
                self.process = subprocess.Popen(
                    [python(self.tree) if self.tree else sys.executable, "-m", "infra.cli", "serve"],
                    env=self.environment,
                    cwd=self.tree,
                    stdout=log,
                    stderr=log,
                )
        if wait:
            self.wait_ready(wait)
        return self

    def __enter__(self) -> ServiceProcess:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        """Stop; after a body without an error, the exit status must be 0."""
        status = self.stop()
        assert kind is not None or status == 0, self.tail()

    def wait_ready(self, timeout: float = 120.0) -> None:
        """Wait for `/readyz`; if the process ended, fail with its last lines."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            assert self.process is not None
            if self.process.poll() is not None:
                raise AssertionError(f"ended with {self.process.returncode}:\n{self.tail()}")
            try:
                if httpx2.get(f"{self.url}/readyz", timeout=2).status_code == 200:
                    return
            except httpx2.TransportError:
                pass
            time.sleep(0.05)
        raise AssertionError(f"not ready after {timeout} s:\n{self.tail()}")

    def ask_ready(self) -> str:
        """Return what `/readyz` answers, "" if nothing does."""
        with suppress(httpx2.TransportError):
            return httpx2.get(f"{self.url}/readyz", timeout=10).text
        return ""

    def command(self, *arguments: str) -> str:
        """Run another command of `earshot` on the same data, and return what it prints."""
        with tempfile.TemporaryDirectory() as directory:
            out, err = Path(directory, "out"), Path(directory, "err")
            status = Forked(arguments, self.environment, out, err).wait(120)
            assert status == 0, out.read_text() + err.read_text()
            return out.read_text()

    def operate(self, method: str, path: str, **request: Any) -> Any:
        """Send a request to the operator's interface, which must succeed; return what it answers."""
        headers = {"Authorization": f"Bearer {ADMIN_KEY}"}
        answer = ask(method, f"{self.url}/admin/v1{path}", headers=headers, **request)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def project(self, name: str, organization: str = "demo") -> str:
        """Create a project, by default in the first organization, and return its key."""
        return str(self.operate("POST", "/projects", json={"name": name, "organization": organization})["key"])

    def tail(self, lines: int = 25) -> str:
        """Return the last lines of the log, and the trace of a crash.

        Refused requests are left out, because clients repeat them endlessly.
        """
        said = [line for line in self.log.read_text(errors="replace").splitlines() if "request refused" not in line]
        crash = self.data / CRASH
        trace = crash.read_text(errors="replace").splitlines() if crash.exists() else []
        return "\n".join((*said[-lines:], *trace))

    def kill(self) -> None:
        """Kill the process as a crash would."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def drop_tables(self) -> None:
        """Delete the tables of a stopped process; the next start makes them from the log."""
        for tables in self.data.glob("tables*"):
            shutil.rmtree(tables)

    def pause(self) -> None:
        """Suspend the process; it does not notice."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume a paused process; a running one is unaffected."""
        if self.running and self.process is not None:
            self.process.send_signal(signal.SIGCONT)

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def move(self) -> None:
        """Choose another port for the next start."""
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.environment["EARSHOT_PORT"] = str(self.port)

    def stop(self) -> int:
        """Ask the process to stop and return its exit status."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(90)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        return self.process.wait()
