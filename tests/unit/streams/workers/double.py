"""Workers as threads of this process, on a test's engines, with the messages of real processes."""

import mmap
import os
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Final, cast

import msgspec

from streams.models.loaded_models import LoadedModels
from streams.models.protocol import SoundEngine
from streams.processes.messages import hello
from streams.workers import messages
from streams.workers.worker import Worker
from streams.workers.workers import Fork, Workers
from tests.waiting import until

#: A number without a process, as Linux has none above 2^22. Killing this worker has no effect.
NOBODY: Final = (1 << 22) + 1


class Death(BaseException):
    """Ends a worker, like a crash of a process."""


class Line(socket.socket):
    """A worker's end of its socket; marks the worker as no process."""

    greeted = False

    def send(self, data: bytes, flags: int = 0) -> int:  # type: ignore[override]
        if not self.greeted:
            self.greeted = True
            data = messages.encode(msgspec.structs.replace(hello(data), process=NOBODY))
        return super().send(data, flags)


class WorkerThreads:
    """Starts workers that are threads, with the engines present at their start. Any thread."""

    def __init__(self, engines: Callable[[], Iterable[SoundEngine]]) -> None:
        self._engines = engines
        self.memory_bytes = messages.memory_bytes(messages.slot_bytes(0))
        #: The ends of all workers that were started.
        self.lines: list[Line] = []

    def fork(self, file: int | None = None) -> tuple[socket.socket, int]:
        """Return the parent's end of a new worker, and their shared memory."""
        ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        line = Line(fileno=theirs.detach())
        memory = os.memfd_create("worker")
        os.ftruncate(memory, self.memory_bytes)
        engines = {engine.manifest.model_id: engine for engine in self._engines()}
        worker = Worker(line, mmap.mmap(memory, 0), engines, None if file is None else os.dup(file))
        threading.Thread(target=self._serve, args=(line, worker), daemon=True).start()
        self.lines.append(line)
        return ours, memory

    def _serve(self, line: Line, worker: Worker) -> None:
        with line, suppress(Death, ConnectionError):
            worker.serve(True)

    def kill(self, number: int) -> None:
        """End a worker during any work: its parent receives nothing more."""
        with suppress(OSError):
            self.lines[number].shutdown(socket.SHUT_RDWR)


def of_models(models: LoadedModels) -> WorkerThreads:
    """Return workers with a node's models."""
    return WorkerThreads(lambda: [cast(SoundEngine, models.engine(model)) for model in models.loaded])


@asynccontextmanager
async def working(
    *engines: SoundEngine, count: int = 1, slot_bytes: int | None = None, fork: Fork | None = None
) -> AsyncIterator[Workers]:
    """Run workers with some models, or from another `fork`."""
    threads = WorkerThreads(lambda: engines)
    threads.memory_bytes = messages.memory_bytes(slot_bytes) if slot_bytes else threads.memory_bytes
    workers = Workers(count, fork or threads.fork)
    await workers.start()
    try:
        await until(lambda: fork or len(workers.processes()) == count)
        yield workers
    finally:
        await workers.stop()
