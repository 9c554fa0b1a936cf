"""The processes that the benchmark starts: the service, its bare counterparts, the load, a browser, and Kafka."""

from __future__ import annotations

import http.client
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from benchmarks import procfs
from benchmarks.measures import Sample, alternate
from benchmarks.plans import AnyPlan, Target
from tests.kafka_launcher.launcher import KafkaCluster
from tests.ports import free_port

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT: Final = Path(__file__).parent.parent
KEY: Final = "benchmarks-project-key-0123456789"
ADMIN_KEY: Final = "benchmarks-admin-key-0123456789"
READY_SECONDS: Final = 180.0
BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")
#: Exit status of a load process whose requests the service refuses.
REFUSED: Final = 3


class BenchmarkError(Exception):
    """A process of the benchmark failed."""


class Refused(BenchmarkError):
    """The service refused what the load process sent."""


class ServerProcess:
    def __init__(self, module: str, *arguments: str, port: int, log: Path, settings: Mapping[str, str]) -> None:
        # Bytecode is kept, as for a user; otherwise each start compiles all modules.
        left_out = ("EARSHOT_", "PYTHONDONTWRITEBYTECODE")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
        self.port = port
        self.log = log
        #: Processes of the log that it uses.
        self.brokers: tuple[int, ...] = ()
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                env={**clean, **settings},
                cwd=ROOT,
                stdout=output,
                stderr=output,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def target(self) -> Target:
        return Target(self.port, (self.pid,), self.brokers, KEY)

    def lanes(self) -> list[int]:
        """Return the processes of the event loops, by the number of the lane."""
        return procfs.lanes(self.pid) or [self.pid]

    def wait(self, path: str = "/readyz") -> None:
        """Wait until a path answers 200.

        Raises:
            BenchmarkError: The process ended, or is not ready in time; the message has the end of its log.
        """
        deadline = time.monotonic() + READY_SECONDS
        while _status(self.port, path) != 200:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise BenchmarkError(f"{self.process.args!r} is not ready:\n{self.log.read_text()[-2000:]}")
            time.sleep(0.02)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()


def _status(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


def get(port: int, path: str, key: str = "") -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path, headers={"X-Api-Key": key} if key else {})
    body = connection.getresponse().read()
    connection.close()
    return body


def new_project(port: int, name: str) -> str:
    """Create a project on a service with `ADMIN_KEY`; return its key."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"Authorization": f"Bearer {ADMIN_KEY}", "Content-Type": "application/json"}
    body = msgspec.json.encode({"name": name, "organization": "demo"})
    connection.request("POST", "/admin/v1/projects", body, headers)
    key = msgspec.json.decode(connection.getresponse().read())["key"]
    connection.close()
    return str(key)


def service(
    directory: Path, command: Sequence[str] = ("infra.cli", "serve"), **settings: str
) -> AbstractContextManager[ServerProcess]:
    """Run `earshot serve`, or another `command`, with its data under `directory`; yield when ready."""
    port = free_port()
    chosen = {
        "port": str(port),
        "data": str(directory),
        "bootstrap_project_key": KEY,
        "log_level": "warning",
        "bundled_engines": "false",
        # Otherwise it follows the number of cores.
        "lanes": "1",
        # One project takes all load.
        "project_sessions": "1000000",
        "project_jobs": "1000000",
        **settings,
    }
    environment = {f"EARSHOT_{name.upper()}": value for name, value in chosen.items()}
    log = directory.with_name(f"{directory.name}.log")
    return _ready(ServerProcess(*command, port=port, log=log, settings=environment))


def bare(module: str, directory: Path, *arguments: str) -> AbstractContextManager[ServerProcess]:
    """Run a bare counterpart, `python -m benchmarks.bare.MODULE PORT ARGUMENT...`; yield when ready."""
    port = free_port()
    log = directory / f"{module}.log"
    return _ready(ServerProcess(f"benchmarks.bare.{module}", str(port), *arguments, port=port, log=log, settings={}))


def engines(directory: Path, port: int) -> AbstractContextManager[ServerProcess]:
    """Run `earshot engines`; yield when ready."""
    log = directory / "engines.log"
    server = ServerProcess("infra.cli", "engines", "--port", str(port), port=port, log=log, settings={})
    return _ready(server, "/healthz")


@contextmanager
def _ready(server: ServerProcess, path: str = "/readyz") -> Iterator[ServerProcess]:
    try:
        server.wait(path)
        yield server
    finally:
        server.stop()


@contextmanager
def kafka() -> Iterator[tuple[str, tuple[int, ...]]]:
    """Run an empty single-node Kafka; yield its address and its processes."""
    before = procfs.descendants(os.getpid())
    with temporary_directory() as directory, KafkaCluster(directory, port=None) as cluster:
        yield cluster.bootstrap, tuple(procfs.descendants(os.getpid()) - before)


@contextmanager
def temporary_directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="earshot-bench-") as directory:
        yield Path(directory)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run a Chromium.

    Raises:
        BenchmarkError: There is none on the PATH.
    """
    from playwright.sync_api import sync_playwright  # `make check` installs it.

    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        raise BenchmarkError(f"there is none of {', '.join(BROWSERS)} on the PATH")
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=found, args=["--no-sandbox"]) as browser,
    ):
        yield browser


def run_load(plan: AnyPlan) -> Sample:
    return _answer("benchmarks.load", plan=msgspec.json.encode(plan))


def alternate_loads(plans: Iterable[AnyPlan], pairs: int) -> list[tuple[Sample, Sample]]:
    """Run two plans alternately; return the pairs of samples."""
    ours, other = (partial(run_load, plan) for plan in plans)
    return alternate(ours, other, pairs)


def run_bare(module: str, *arguments: str) -> Sample:
    """Run a bare counterpart that needs no load: `python -m benchmarks.bare.MODULE ARGUMENT...`."""
    return _answer(f"benchmarks.bare.{module}", *arguments)


def _answer(module: str, *arguments: str, plan: bytes = b"") -> Sample:
    process = subprocess.run([sys.executable, "-m", module, *arguments], input=plan, capture_output=True, cwd=ROOT)
    said = process.stderr.decode(errors="replace")[-2000:]
    if process.returncode != 0:
        raise (Refused if process.returncode == REFUSED else BenchmarkError)(f"{module} failed:\n{said}")
    try:
        return msgspec.json.decode(process.stdout, type=Sample)
    except msgspec.DecodeError as error:
        end = process.stdout[-100:]
        raise BenchmarkError(f"{module} printed {len(process.stdout)} bytes, {error}: ...{end!r}\n{said}") from error
