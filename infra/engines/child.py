"""Runs the engine server as a child of the service, and restarts it whenever it dies."""

import asyncio
import contextlib
import secrets
import shutil
import socket
import time
from pathlib import Path
from typing import Final

import msgspec
import structlog

from infra.engines import COMMAND
from infra.engines.speech.speech_models import SpeechSettings
from streams.folding import retry
from streams.processes.zygote_process import bare_environment

log = structlog.get_logger("infra.engines")

LONGEST_PAUSE_S: Final = 10.0
#: After a child has lived this long, its next restart has the shortest pause again.
STABLE_S: Final = 60.0
STOP_S: Final = 5.0
BACKLOG: Final = 128


class EngineServer:
    """Keeps one child alive.

    The service owns the listening socket, so connections without a child wait for the next one instead of being
    refused. The child reads its key from standard input and ends with it, so it does not outlive a killed service.
    """

    def __init__(self, level: str, form: str, directory: Path, speech: SpeechSettings) -> None:
        """Open the listening socket, where connections wait until `start` has started a child.

        The child logs by `level` and `form`, as in `infra.logs.configure`. It keeps recordings in `directory` while it
        works on them; each start empties it.

        Raises:
            OSError: no port is free.
        """
        self._directory = directory
        self._arguments = (level, form, msgspec.json.encode(speech).decode())
        #: The key that engines require, because other users of the machine and its browsers reach the port too.
        self.key = secrets.token_urlsafe(32)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
        self._process: asyncio.subprocess.Process | None = None
        self._keeper: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """The base URL of the engines."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    @property
    def pid(self) -> int | None:
        """The child's process id; None if there is no child."""
        return None if self._process is None or self._process.returncode is not None else self._process.pid

    async def start(self) -> None:
        """Start the child in the background."""
        self._keeper = asyncio.create_task(self._keep(), name="engines")

    async def stop(self) -> None:
        """End the child; requests in progress get no answer."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        self._listener.close()
        if self._process is not None:
            await _end(self._process)

    async def _keep(self) -> None:
        failures = 0
        while True:
            began = time.monotonic()
            status = await self._run()
            failures = 1 if time.monotonic() - began > STABLE_S else failures + 1
            pause = retry.pause(failures, LONGEST_PAUSE_S)
            log.warning("engines.died", status=status, pause=pause)
            await asyncio.sleep(pause)

    async def _run(self) -> int | str:
        """Start the child and wait for its end; return its exit status, or why it could not start."""
        descriptor = self._listener.fileno()
        environment = bare_environment()
        try:
            await asyncio.to_thread(_empty, self._directory)
            environment["TMPDIR"] = str(self._directory.absolute())
            self._process = await asyncio.create_subprocess_exec(
                *COMMAND,
                str(descriptor),
                *self._arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                pass_fds=(descriptor,),
                env=environment,
                # Signals to the service's group, as from a terminal, must not reach the child; the service ends it.
                start_new_session=True,
            )
            assert self._process.stdin is not None
            self._process.stdin.write(self.key.encode("ascii") + b"\n")
        except OSError as error:
            return error.strerror or type(error).__name__
        return await self._process.wait()


def _empty(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for left in directory.iterdir():
        shutil.rmtree(left, ignore_errors=True)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(STOP_S):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
