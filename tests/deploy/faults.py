"""Faults of a service that runs: each holds while its context lasts."""

import base64
import contextlib
import itertools
import os
import resource
import signal
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import psutil

from tests.process import ServiceProcess, living


def zygote(service: ServiceProcess) -> psutil.Process:
    assert service.process is not None
    return next(iter(living(psutil.Process(service.process.pid))))


@contextmanager
def repeated(act: Callable[[], object], pause: float = 0.0) -> Iterator[None]:
    """Repeat an action in a thread, with pauses of some seconds."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(pause):
            act()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def slow_workers(service: ServiceProcess) -> Iterator[None]:
    """Leave a hundredth of the time to the workers of a service, as a machine does that is too small.

    The service ends workers that have stood still for a second.
    """
    parent = zygote(service)

    def turn() -> None:
        for number, seconds in ((signal.SIGSTOP, 0.6), (signal.SIGCONT, 0.003)):
            for worker in living(parent):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.pid, number)
            threading.Event().wait(seconds)

    with repeated(turn):
        yield


@contextmanager
def guessed_keys(service: ServiceProcess) -> Iterator[None]:
    """Ask with keys that do not exist."""
    with httpx2.Client(base_url=service.url, timeout=60) as http:

        def guess() -> None:
            http.get("/audio_sessions/", headers={"X-Api-Key": os.urandom(8).hex()})

        with repeated(guess, pause=0.05):
            yield


@contextmanager
def connections(service: ServiceProcess, spare: int) -> Iterator[None]:
    """Let a service open `spare` files more, and take nine of ten of them by connections."""
    assert service.process is not None
    process = psutil.Process(service.process.pid)
    before = process.rlimit(resource.RLIMIT_NOFILE)
    process.rlimit(resource.RLIMIT_NOFILE, (process.num_fds() + spare, before[1]))
    with ExitStack() as stack:
        for _ in range(spare * 9 // 10):
            stack.enter_context(socket.create_connection(("127.0.0.1", service.port)))
        yield
    process.rlimit(resource.RLIMIT_NOFILE, before)


@contextmanager
def without_keys(database: Path) -> Iterator[None]:
    """Take the table of keys out of a database of SQLite."""
    with contextlib.closing(sqlite3.connect(database, isolation_level=None, timeout=60)) as other:
        other.execute("ALTER TABLE keys RENAME TO hidden")
        yield
        other.execute("ALTER TABLE hidden RENAME TO keys")


@contextmanager
def jobs(service: ServiceProcess, key: str | None) -> Iterator[None]:
    """Send broken recordings with a key, or each with a key that nobody knows."""
    form: Mapping[str, Any] = {"options": (None, "{}"), "audio": ("a.wav", b"no audio", "audio/x-wav")}
    with httpx2.Client(base_url=service.url, timeout=60) as http:

        def send() -> None:
            http.post("/api/v1/analyze_file", files=form, headers={"X-Api-Key": key or os.urandom(8).hex()})

        with repeated(send, pause=0.05):
            yield


@contextmanager
def endless_audio(service: ServiceProcess) -> Iterator[None]:
    """Send a stream that never pauses; delete it afterwards."""
    with httpx2.Client(base_url=service.url, timeout=60) as http:
        body = {"type": "stream", "content_type": "audio/x-raw; rate=16000; format=s16le"}
        session = http.post("/audio_sessions/", json=body, headers={"X-Api-Key": service.key}).json()["session_id"]
        chunk, numbers = {"data": base64.b64encode(os.urandom(320_000)).decode()}, itertools.count()

        def send() -> None:
            http.put(f"/audio_sessions/{session}/chunks/{next(numbers)}", json=chunk)

        with repeated(send, pause=0.25):
            yield
        http.delete(f"/audio_sessions/{session}")


@contextmanager
def dying_workers(service: ServiceProcess) -> Iterator[None]:
    """Kill the workers of a service, again and again."""
    parent = zygote(service)

    def kill() -> None:
        for worker in living(parent):
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.kill()

    with repeated(kill, pause=0.5):
        yield
