"""A few processes that recognise speech, one recording each at a time, and a short queue."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import structlog

from infra.engines.admission import AdmissionLimit
from infra.engines.transcripts import RecognitionResult
from infra.engines.worker import Answer, DecodingFailure
from topics.errors import AudioError, Unavailable

log = structlog.get_logger("infra.engines")

WAITING: Final = 4
#: A process takes about 200 MB, so a large machine does not get one for each core.
MOST: Final = 4
#: Several times as long as the longest recording takes.
LIMIT_S: Final = 900.0
IDLE_S: Final = 300.0
RETRY_S: Final = 5
COMMAND: Final = (sys.executable, "-m", "infra.engines.worker")
LINE_BYTES: Final = 16 * 1024 * 1024

_answer_decoder: Final[msgspec.json.Decoder[Answer]] = msgspec.json.Decoder(Answer)


def default_count() -> int:
    """Return the default number of processes: one for each core of this process, up to MOST."""
    return min(MOST, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2)


class Workers:
    """Starts processes when they are needed, and ends them after a while without work."""

    def __init__(
        self,
        most: int | None = None,
        idle_seconds: float = IDLE_S,
        command: Sequence[str] = COMMAND,
        limit: float = LIMIT_S,
    ) -> None:
        """Prepare; no process is started before the first recording.

        Args:
            most: The most processes at a time; None: `default_count()`.
            idle_seconds: How long processes without work are kept.
            command: Starts a process that speaks the protocol of `infra.engines.worker`.
            limit: Seconds that one recording may take.
        """
        self._most = most or default_count()
        self._running = asyncio.Semaphore(self._most)
        self.admission = AdmissionLimit(self._most + WAITING, "speech", RETRY_S)
        self._idle: list[asyncio.subprocess.Process] = []
        self._busy: set[asyncio.subprocess.Process] = set()
        self._closed = False
        self._idle_seconds = idle_seconds
        self._command = command
        self._limit = limit
        self._idle_timer: asyncio.TimerHandle | None = None

    async def transcribe(self, path: Path) -> RecognitionResult:
        """Recognise the recording in a file; cancelling ends the process that works on it.

        Raises:
            AudioError: the recording cannot be decoded, or is too long.
            Unavailable: the recogniser cannot be loaded, died, or took too long.
        """
        async with self._running:
            if self._closed:
                raise Unavailable("the speech engine stops", RETRY_S)
            process = self._take_idle() or await self._start()
            self._busy.add(process)
            answered = False
            try:
                async with asyncio.timeout(self._limit):
                    answer = await self._ask(process, path)
                answered = True
            except TimeoutError:
                raise Unavailable("the speech engine took too long", RETRY_S) from None
            finally:
                self._busy.discard(process)
                if answered:
                    self._make_idle(process)
                else:
                    await _end(process)
        if isinstance(answer, RecognitionResult):
            return answer
        raise (
            AudioError(answer.message) if isinstance(answer, DecodingFailure) else Unavailable(answer.message, RETRY_S)
        )

    async def close(self) -> None:
        """End all processes; waiting recordings fail with Unavailable."""
        self._closed = True
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        for process in (*self._idle, *self._busy):
            await _end(process)

    async def _start(self) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        try:
            return await asyncio.create_subprocess_exec(*self._command, stdin=pipe, stdout=pipe, limit=LINE_BYTES)
        except OSError as error:
            raise Unavailable(f"the speech engine cannot be started: {error.strerror}", RETRY_S) from error

    async def _ask(self, process: asyncio.subprocess.Process, path: Path) -> Answer:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(os.fsencode(path) + b"\n")
            await process.stdin.drain()
            line = await process.stdout.readline()
        except (ConnectionError, ValueError) as error:
            raise Unavailable("the speech engine stopped", RETRY_S) from error
        if not line.endswith(b"\n"):
            if not self._closed:
                log.warning("speech.died", status=process.returncode)
            raise Unavailable("the speech engine stopped", RETRY_S)
        return _answer_decoder.decode(line)

    def _take_idle(self) -> asyncio.subprocess.Process | None:
        while self._idle:
            process = self._idle.pop()
            if process.returncode is None:
                return process
        return None

    def _make_idle(self, process: asyncio.subprocess.Process) -> None:
        self._idle.append(process)
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._idle_timer = asyncio.get_running_loop().call_later(self._idle_seconds, self._end_idle)

    def _end_idle(self) -> None:
        while self._idle:
            # The process ends when its input does; the event loop reaps it.
            stdin = self._idle.pop().stdin
            if stdin is not None:
                stdin.close()


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()
