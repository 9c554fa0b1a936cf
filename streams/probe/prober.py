"""Asks the zygote process to probe a recording, and starts it again when it has died."""

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

from streams.probe.zygote import ANSWER, ASK, BROKEN_LIMIT, MESSAGE_BYTES, WALL_SECONDS, ProbeAnswer
from topics.errors import AudioError, AudioTooLong, Unavailable
from topics.media import Media
from topics.ports.prober import ProbeResult

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

MAX_PROBES: Final = 4
#: Variables of the environment by which libraries are found.
ENVIRONMENT: Final = ("PATH", "LD_LIBRARY_PATH")
#: Loading the decoder takes half a second, more on a busy machine.
START_SECONDS: Final = 30.0
#: How long an answer is waited for beyond the probe's own limit.
GRACE_SECONDS: Final = 1.0


class ZygoteProcess:
    """The child process that probes are forked from, and the socket over which it takes requests."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair()
        self._control.setblocking(False)
        # Untrusted recordings are decoded there: no secret of our environment may be within reach.
        environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        environment |= {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-m", "streams.probe.zygote"]
        with theirs:
            self._process = subprocess.Popen(command, stdin=theirs.fileno(), stdout=subprocess.DEVNULL, env=environment)

    @property
    def alive(self) -> bool:
        """True until the process ends; its socket closes before anything that was handed to it."""
        try:
            return self._control.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    async def ready(self) -> None:
        """Wait until it takes requests.

        Raises:
            Unavailable: it died, or does not start in time.
        """
        try:
            async with asyncio.timeout(START_SECONDS):
                if await asyncio.get_running_loop().sock_recv(self._control, 1):
                    return
        except (OSError, TimeoutError):
            pass
        raise Unavailable("the process that looks into recordings does not start")

    def ask(self, recording: int, line: socket.socket) -> None:
        """Hand over the descriptor of a recording and the socket for the answer.

        Raises:
            OSError: the process has ended.
        """
        socket.send_fds(self._control, [ASK], [recording, line.fileno()])

    async def stop(self) -> None:
        """End the process; its probes end by themselves, within their limits."""
        self._control.close()
        self._process.kill()
        await asyncio.to_thread(self._process.wait)


class ForkingProber:
    """The port `topics.ports.prober.Prober`: each recording is decoded in a process of its own, a few at a time."""

    def __init__(self, max_probes: int = MAX_PROBES) -> None:
        self._slots = asyncio.Semaphore(max_probes)
        self._starting = asyncio.Lock()
        self._zygote: ZygoteProcess | None = None

    async def start(self) -> None:
        """Start the child process now, not with the first recording; may be called again.

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
        """Decode the first second of a seekable file, given as a descriptor, whose position changes.

        Only raw PCM, which nothing can recognise, has to be `declared`.

        Raises:
            AudioTooLong: the recording is longer than any that is analysed.
            AudioError: it is no audio that can be analysed.
            Unavailable: the child process cannot be had now, or is too slow.
        """
        async with self._slots:
            answer = await self._answer(file, declared)
        if answer.result is not None:
            return answer.result
        if answer.fault is None:
            raise Unavailable("the recording cannot be looked into now")
        raise (AudioTooLong if answer.too_long else AudioError)(answer.fault)

    async def _answer(self, file: int, declared: Media | None) -> ProbeAnswer:
        for _ in range(2):
            zygote = await self._running()
            with contextlib.suppress(OSError):
                encoded = await _ask(zygote, file, declared)
                if encoded:
                    return ANSWER.decode(encoded)
                if zygote.alive:
                    return ProbeAnswer(fault=BROKEN_LIMIT)
        return ProbeAnswer()

    async def _running(self) -> ZygoteProcess:
        async with self._starting:
            if self._zygote is not None and not self._zygote.alive:
                log.warning("the process that looks into recordings died, another is started")
                await self._zygote.stop()
                self._zygote = None
            if self._zygote is None:
                zygote = ZygoteProcess()
                try:
                    await zygote.ready()
                except BaseException:
                    await zygote.stop()
                    raise
                self._zygote = zygote
            return self._zygote


async def _ask(zygote: ZygoteProcess, file: int, declared: Media | None) -> bytes:
    """Return the encoded answer; b"" when the probe ended without one.

    Raises:
        OSError: the zygote process has ended.
        Unavailable: no answer came in time: the machine is busy, and nothing is known of the audio.
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
        except ConnectionError:  # the probe ended before it read the declaration
            return b""
