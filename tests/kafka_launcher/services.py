"""Nodes of Earshot on a Kafka of this machine, as processes that their user may kill."""

import os
import secrets
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from tests.kafka_launcher.jars import LauncherError
from tests.kafka_launcher.node import require_free, with_parent

PORT: Final = 8000
READY_SECONDS: Final = 120.0
STOP_SECONDS: Final = 30.0


class ServiceNode:
    """`earshot serve` number n (from 1) with the port `PORT` + n - 1, its own data, and the database of all nodes."""

    def __init__(self, number: int, directory: Path, bootstrap: str) -> None:
        self.number = number
        self.port = PORT + number - 1
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = directory / f"service-{number}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._environment = {
            "EARSHOT_LANES": "1",
            **os.environ,
            "EARSHOT_BROKER": f"kafka://{bootstrap}",
            "EARSHOT_DATABASE_URL": f"sqlite:///{directory / 'earshot.db'}",
            "EARSHOT_DATA": str(directory / f"service-{number}"),
            "EARSHOT_PORT": str(self.port),
            "EARSHOT_ADMIN_KEY_FILE": str(directory / "admin-key"),
            "EARSHOT_BOOTSTRAP_PROJECT_KEY_FILE": str(directory / "project-key"),
        }

    @property
    def process(self) -> int | None:
        """The number of the process, None if there is none."""
        return None if self._process is None or self._process.poll() is not None else self._process.pid

    @property
    def status(self) -> str:
        """How the process ended."""
        code = 0 if self._process is None else self._process.wait()
        return signal.Signals(-code).name if code < 0 else f"status {code}"

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*with_parent(), sys.executable, "-m", "infra.cli", "serve"],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C in a terminal reaches only the launcher, which stops the nodes before the brokers.
                start_new_session=True,
            )

    def wait(self) -> None:
        """Return once it serves.

        Raises:
            LauncherError: it ended, or does not serve in time; the message has the end of its log.
        """
        deadline = time.monotonic() + READY_SECONDS
        while not self._is_ready():
            if self.process is None:
                raise self.failure("did not start")
            if time.monotonic() > deadline:
                raise self.failure(f"did not serve in {READY_SECONDS:g} s")
            time.sleep(0.2)

    def failure(self, what: str) -> LauncherError:
        tail = self.log.read_text(errors="replace").splitlines()[-4:]
        return LauncherError("\n  ".join([f"Earshot node {self.number} {what}; the end of {self.log}:", *tail]))

    def terminate(self) -> None:
        if self._process is not None:
            self._process.terminate()

    def join(self) -> None:
        """Wait for a terminating process, and kill it if it does not end."""
        if self._process is not None:
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _is_ready(self) -> bool:
        with suppress(OSError), urllib.request.urlopen(f"{self.url}/readyz", timeout=2) as answer:
            return bool(answer.status == 200)
        return False


class Services:
    """Nodes 1.. of Earshot, with their data and keys below a directory. A start that fails leaves nothing running."""

    def __init__(self, directory: Path, count: int, bootstrap: str) -> None:
        self.directory = directory.absolute()
        self.nodes = [ServiceNode(n, self.directory, bootstrap) for n in range(1, count + 1)]

    def __enter__(self) -> Self:
        for node in self.nodes:
            require_free(node.port)
        for name in ("admin-key", "project-key") if self.nodes else ():
            if not (key := self.directory / name).exists():
                key.write_text(secrets.token_urlsafe(24) + "\n")
        try:
            for node in self.nodes:
                node.start()
            for node in self.nodes:
                node.wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for node in self.nodes:
            node.terminate()
        for node in self.nodes:
            node.join()
