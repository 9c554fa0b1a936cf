"""Asks the zygote to look into a recording, and starts it again when it has died."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from typing import Final

import msgspec
import structlog

from streams.probe.zygote import ANSWER, ASK, BROKEN_LIMIT, MESSAGE_BYTES, WALL_SECONDS, Answer
from topics.errors import AudioError, AudioTooLong, Unavailable
from topics.media import Media
from topics.ports.prober import ProbeResult

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

AT_ONCE: Final = 4
#: What the libraries may need to be found.
PASSED_ON: Final = ("PATH", "LD_LIBRARY_PATH")
#: Loading the decoder takes half a second, more on a busy machine.
START_SECONDS: Final = 30.0
#: Beyond the probe's own limit.
GRACE_SECONDS: Final = 1.0


class Zygote:
    """The child process, and the socket over which it is asked."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair()
        self._control.setblocking(False)
        # A stranger's recording is decoded there: no secret of our environment is within its reach.
        environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        environment |= {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-m", "streams.probe.zygote"]
        with theirs:
            self._process = subprocess.Popen(command, stdin=theirs.fileno(), stdout=subprocess.DEVNULL, env=environment)

    @property
    def alive(self) -> bool:
        """True until the process ends; its socket tells so before anything that it was handed is closed."""
        try:
            return self._control.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    async def ready(self) -> None:
        """Wait until it can be asked.

        Raises:
            Unavailable: it died, or does not come up in time.
        """
        try:
            async with asyncio.timeout(START_SECONDS):
                if await asyncio.get_running_loop().sock_recv(self._control, 1):
                    return
        except (OSError, TimeoutError):
            pass
        raise Unavailable("the process that looks into recordings does not start")

    def ask(self, recording: int, line: socket.socket) -> None:
        """Hand over a recording and the socket for the answer; OSError when nobody takes them."""
        socket.send_fds(self._control, [ASK], [recording, line.fileno()])

    async def stop(self) -> None:
        """End the process; its probes end by themselves, within their limits."""
        self._control.close()
        self._process.kill()
        await asyncio.to_thread(self._process.wait)


class Prober:
    """`topics.ports.prober.Prober`: each recording is decoded in a process of its own, a few at a time."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._turns = asyncio.Semaphore(at_once)
        self._starting = asyncio.Lock()
        self._zygote: Zygote | None = None

    async def start(self) -> None:
        """Start the child process now, not with the first recording; allowed twice.

        Raises:
            Unavailable: it does not start.
        """
        await self._running()

    async def stop(self) -> None:
        """End the child process."""
        async with self._starting:
            zygote, self._zygote = self._zygote, None
            if zygote is not None:
                await zygote.stop()

    async def probe(self, file: int, declared: Media | None) -> ProbeResult:
        """As `topics.ports.prober.Prober.probe`; moves the place at which the descriptor reads."""
        async with self._turns:
            answer = await self._answer(file, declared)
        if answer.found is not None:
            return answer.found
        if answer.fault is None:
            raise Unavailable("the recording cannot be looked into now")
        raise (AudioTooLong if answer.too_long else AudioError)(answer.fault)

    async def _answer(self, file: int, declared: Media | None) -> Answer:
        for _ in range(2):
            zygote = await self._running()
            with contextlib.suppress(OSError):
                said = await _asked(zygote, file, declared)
                if said:
                    return ANSWER.decode(said)
                if zygote.alive:
                    return Answer(fault=BROKEN_LIMIT)
        return Answer()

    async def _running(self) -> Zygote:
        async with self._starting:
            if self._zygote is not None and not self._zygote.alive:
                log.warning("the process that looks into recordings died, another is started")
                await self._zygote.stop()
                self._zygote = None
            if self._zygote is None:
                zygote = Zygote()
                try:
                    await zygote.ready()
                except BaseException:
                    await zygote.stop()
                    raise
                self._zygote = zygote
            return self._zygote


async def _asked(zygote: Zygote, file: int, declared: Media | None) -> bytes:
    """Return the encoded answer, b"" when the probe ended without one.

    Raises:
        OSError: the zygote is not there.
        Unavailable: neither came in time: the machine is busy, and nothing is known of the audio.
    """
    ours, theirs = socket.socketpair()
    with ours:
        ours.setblocking(False)
        with theirs:
            ours.send(msgspec.msgpack.encode(declared))
            zygote.ask(file, theirs)
        try:
            async with asyncio.timeout(WALL_SECONDS + GRACE_SECONDS):
                return await asyncio.get_running_loop().sock_recv(ours, MESSAGE_BYTES)
        except TimeoutError:
            raise Unavailable("the recording could not be looked into in time") from None
        except ConnectionError:  # it ended before it read what was declared
            return b""
