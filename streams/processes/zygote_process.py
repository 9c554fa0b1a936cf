"""The zygote as seen by its parent: the process from which all others are forked."""

import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import Final, TypeVar

import structlog

from streams.processes import messages
from streams.processes.child import POLL_SECONDS, Child, Deadlines, Stopwatch
from topics.errors import EngineError, Unavailable

T = TypeVar("T")

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Environment variables needed to find libraries, and places where they may write, and the processor of numba's code.
ENVIRONMENT: Final = (
    "PATH",
    "LD_LIBRARY_PATH",
    "TMPDIR",
    "NUMBA_CACHE_DIR",
    "NUMBA_CPU_NAME",
    "NUMBA_CPU_FEATURES",
)
#: Bytes that glibc's heap keeps for the next chunk; otherwise it returns them to the kernel after each chunk and gets
#: them back page by page. Other C libraries ignore these variables.
KEPT_MEMORY: Final = dict.fromkeys(("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"), str(4 << 20))
#: Loading the libraries takes half a second, longer on a busy machine.
START_SECONDS: Final = 30.0
#: Forking takes some milliseconds.
FORK_SECONDS: Final = 5.0
#: So does the end of a killed process.
END_SECONDS: Final = 5.0
#: For loading a model: a large one from a slow disk takes minutes, but others wait for a zygote that was stopped.
LOADING: Final = Deadlines(processor=600.0, idle=30.0, wall=1200.0)


def bare_environment() -> dict[str, str]:
    """Return the environment of a child that decodes untrusted audio, without any of our secrets.

    OpenBLAS gets one thread: it would start one for each core of the machine.
    """
    kept = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
    return kept | {"PYTHONPATH": os.pathsep.join(sys.path), "OPENBLAS_NUM_THREADS": "1"}


def _shared_file(stack: ExitStack, size: int) -> int:
    """Return the descriptor of a memfd or, without memfd support, of an unnamed file; `stack` closes it.

    Raises:
        OSError: too many open files, or no space.
    """
    try:
        memory = os.memfd_create("samples", os.MFD_CLOEXEC)
    except (AttributeError, OSError):
        with tempfile.TemporaryFile() as file:
            # Reserve the space: writing to a mapped file without space kills the writer.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.write(bytes(size))
                file.flush()
            memory = os.dup(file.fileno())
        _tell_of_files()
    stack.callback(os.close, memory)
    os.ftruncate(memory, size)
    return memory


@cache
def _tell_of_files() -> None:
    log.warning("workers.without_memfd", reason=f"audio for workers lies in {tempfile.gettempdir()}")


def _start(command: Sequence[str]) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start a zygote; return the socket to it, and its process."""
    control, theirs = socket.socketpair()
    with ExitStack() as ours, theirs:
        ours.callback(control.close)
        process = subprocess.Popen(
            command,
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            env=bare_environment() | KEPT_MEMORY,
            # A signal to the service's group, as from a terminal, is for the service only; it ends the zygote.
            start_new_session=True,
        )
        ours.pop_all()
    return control, process


class ZygoteProcess:
    """The child process that forks others, and the socket for requests to it. One thread at a time."""

    def __init__(self, command: Sequence[str], given: socket.socket | None = None) -> None:
        """Start it, or take over a further one from another process (see `further`).

        Raises:
            Unavailable: it died, or does not start in time.
            OSError: this process can open no more files, or the machine cannot fork.
        """
        # One that is given is no child of this process, and its id is in its greeting.
        self._process: subprocess.Popen[bytes] | None = None
        if given is None:
            given, self._process = _start(command)
        self._control = given
        self._child = Child(0 if self._process is None else self._process.pid)
        self._control.settimeout(START_SECONDS)
        with suppress(OSError):
            if greeting := self._control.recv(messages.ID_BYTES):
                if self._process is None:
                    self._child = Child(int.from_bytes(greeting, "little"))
                self._control.settimeout(None)
                return
        self.stop()
        raise Unavailable("the process that others are forked from does not start")

    def fork(self, size: int, file: int | None = None) -> tuple[socket.socket, int]:
        """Return the socket of a new process, which has sent its greeting, and a memory of `size` bytes shared with it.

        The process can read `file`, a descriptor, if there is one.

        Raises:
            ConnectionError: it ended at once, or the machine cannot fork; or the zygote has ended.
            TimeoutError: the zygote does not answer.
            OSError: this process can open no more files.
        """
        with ExitStack() as ours:
            memory = _shared_file(ours, size)
            given = (memory, memory if file is None else file)
            line = self._forked(messages.FORK, given, socket.SOCK_SEQPACKET)
            ours.pop_all()
        return line, memory

    def further(self) -> socket.socket:
        """Return the socket of a further zygote with the same models, for a `ZygoteProcess` of any process.

        Raises:
            OSError: as from `fork`.
        """
        return self._forked(messages.FURTHER, (), socket.SOCK_STREAM)

    def _forked(self, request: bytes, given: Iterable[int], kind: socket.SocketKind) -> socket.socket:
        """Return the socket of a new process, whose other end it got with the descriptors `given`; it has greeted."""
        with ExitStack() as ours:
            line, theirs = socket.socketpair(type=kind)
            ours.callback(line.close)
            with theirs:
                socket.send_fds(self._control, [request], [theirs.fileno(), *given])
            line.settimeout(FORK_SECONDS)
            if not line.recv(1, socket.MSG_PEEK):
                raise ConnectionResetError
            ours.pop_all()
        return line

    def prepare(self) -> None:
        """Have it load what models need, before the first request."""
        self._control.sendall(messages.PREPARE)

    def load(self, directory: Path) -> None:
        """Load the model in a directory; processes forked afterwards have it.

        Raises:
            EngineError: the model cannot be used.
            TimeoutError: the zygote does nothing, or takes too long.
            ConnectionError: the zygote has ended.
        """
        name = os.fsencode(directory)
        self._control.sendall(messages.LOAD + len(name).to_bytes(messages.LENGTH_BYTES, "little") + name)
        self._await_load()
        length = self._control.recv(messages.LENGTH_BYTES, socket.MSG_WAITALL)
        if len(length) < messages.LENGTH_BYTES:
            raise BrokenPipeError("the process that others are forked from has ended")
        if size := int.from_bytes(length, "little"):
            raise EngineError(self._control.recv(size, socket.MSG_WAITALL).decode())

    def _await_load(self) -> None:
        stopwatch = Stopwatch(self._child, LOADING)
        self._control.settimeout(min(POLL_SECONDS, LOADING.idle / 2))
        while True:
            try:
                self._control.recv(1, socket.MSG_PEEK)
                break
            except TimeoutError:
                if stopwatch.fault() is not None:
                    raise
        self._control.settimeout(None)

    @property
    def alive(self) -> bool:
        """Whether it still runs; its socket closes when it ends."""
        try:
            return self._control.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    @property
    def process(self) -> int:
        return self._child.number

    def stop(self) -> None:
        """End it and all remaining decoders, but not further zygotes."""
        self._child.close()
        if self._process is not None:
            self._process.wait()
        else:
            self._control.settimeout(END_SECONDS)
            with suppress(OSError):
                while self._control.recv(messages.LENGTH_BYTES):  # Its end closes the socket.
                    pass
        self._control.close()


class Zygote:
    """Starts this process's zygote on demand, and again after it ended. Any thread."""

    def __init__(self, command: Sequence[str], given: socket.socket | None = None) -> None:
        """Start it with `command`; the first one is there already if its socket is `given`."""
        self._command = command
        self._given = given
        self._lock = threading.Lock()
        self._process: ZygoteProcess | None = None
        #: The models that it has, and loads again after a restart; and those of them that could not be loaded again.
        self._models: dict[Path, None] = {}
        self._missing: dict[Path, None] = {}

    def start(self) -> None:
        """Start it before its first use. Idempotent.

        Raises:
            Unavailable: it does not start.
        """
        with self._lock:
            self._running()

    def start_beside(self) -> None:
        """Start the zygote in a background thread and preload the model libraries. The first use reports a failure."""

        def start() -> None:
            with suppress(Unavailable, OSError), self._lock:
                self._running().prepare()

        threading.Thread(target=start, name="zygote", daemon=True).start()

    def stop(self) -> None:
        """End it and everything forked from it; a later use starts it again."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.stop()

    def load(self, directory: Path) -> None:
        """Load the model in a directory, unless it is loaded. Blocks.

        Raises:
            EngineError: the model cannot be used.
            Unavailable: the zygote cannot be started.
        """
        with self._lock:
            if directory not in self._models or directory in self._missing or self._process is None:
                self._attempt(lambda process: process.load(directory))
                self._note_loaded(directory)
                if len(self._models) > messages.MOST_MODELS:
                    oldest = next(iter(self._models))
                    del self._models[oldest]
                    self._missing.pop(oldest, None)

    @property
    def process(self) -> int:
        """The process id; 0 if it is not running."""
        return 0 if self._process is None else self._process.process

    def fork(self, size: int, file: int | None = None) -> tuple[socket.socket, int]:
        """Return the socket and the memory's descriptor of a new process with all models, as `ZygoteProcess.fork` does.

        Raises:
            Unavailable: none can be started.
        """
        with self._lock:
            return self._attempt(lambda process: self._complete(process).fork(size, file))

    def further(self) -> socket.socket:
        """Return the socket of a further zygote with all models, for a `Zygote` of any process.

        Raises:
            Unavailable: none can be started.
        """
        with self._lock:
            return self._attempt(lambda process: self._complete(process).further())

    def _attempt(self, ask: Callable[[ZygoteProcess], T]) -> T:
        """Send a request to the zygote, and once more, to a new one if it ended or does not answer."""
        reason = ""
        for _ in range(2):
            process = self._running()
            try:
                return ask(process)
            except OSError as fault:
                reason = f": {fault.strerror}" if fault.strerror else ""
                if process.alive and not isinstance(fault, TimeoutError):
                    # The child ended at once, or the machine cannot fork: a restart would only end the others.
                    continue
                log.warning(
                    "zygote.restarted", reason="the process that others are forked from ended or does not answer"
                )
                self._process = None
                process.stop()
        raise Unavailable(f"no process for audio can be started{reason}")

    def _running(self) -> ZygoteProcess:
        if self._process is None:
            try:
                given, self._given = self._given, None
                self._process = ZygoteProcess(self._command, given)
            except OSError as error:
                raise Unavailable(f"no process for audio can be started: {error.strerror}") from error
            self._missing = dict(self._models)
        return self._process

    def _complete(self, process: ZygoteProcess) -> ZygoteProcess:
        """Return a zygote after it has loaded the models that it lacks."""
        for directory in list(self._missing):
            try:
                process.load(directory)
            except EngineError as error:  # It loaded before: the next worker may have it again.
                log.warning("workers.model_missing", model=str(directory), error=str(error))
            else:
                self._note_loaded(directory)
        return process

    def _note_loaded(self, directory: Path) -> None:
        """Note that it has a model, which it will evict last."""
        self._missing.pop(directory, None)
        self._models.pop(directory, None)
        self._models[directory] = None
