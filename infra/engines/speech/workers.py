"""The process that recognises speech with one model, and a short queue in front of it."""

import asyncio
import contextlib
import functools
import itertools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec
import structlog

from infra.engines.speech.transcripts import RecognitionResult
from infra.engines.speech.worker_protocol import DecodingFailure, LoadFailure, NumberedAnswer, RecognitionRequest
from streams import cores
from streams.clients.restarts import Restarts
from streams.processes.zygote_process import bare_environment
from topics.errors import AudioError, EngineError, Unavailable

log = structlog.get_logger("infra.engines")

WAITING: Final = 4
#: Whisper gets no faster with more threads.
MOST_THREADS: Final = 4
#: Several times as long as the longest recording takes.
LIMIT_S: Final = 900.0
IDLE_S: Final = 300.0
RETRY_S: Final = 5
LINE_BYTES: Final = 16 * 1024 * 1024

_answer_decoder: Final = msgspec.json.Decoder(NumberedAnswer)


class Died(Unavailable):
    """The process died while it had the recording."""


class NotLoaded(EngineError):
    """The process runs, but cannot load its model."""


def default_threads() -> int:
    """Return the number of this process's cores, up to MOST_THREADS."""
    return min(MOST_THREADS, cores.usable())


class Worker:
    """A process and its pending requests."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._waiting: dict[int, asyncio.Future[NumberedAnswer]] = {}
        self._numbers = itertools.count()
        self._reader = asyncio.create_task(self._read())
        #: It was asked to end.
        self.ended = False
        #: Number of requests in progress.
        self.load = 0

    @property
    def alive(self) -> bool:
        return not self.ended and not self._reader.done()

    async def ask(self, request: RecognitionRequest) -> NumberedAnswer:
        """Return the answer to a request, whatever its number; cancelling makes the process drop it.

        Raises:
            Died: the process has died.
        """
        number = next(self._numbers)
        answer: asyncio.Future[NumberedAnswer] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            await self._send(msgspec.structs.replace(request, number=number))
            return await answer
        except ConnectionError as error:
            raise Died("the speech engine stopped", RETRY_S) from error
        finally:
            if self._waiting.pop(number, None) is not None and self.alive:
                with contextlib.suppress(ConnectionError):
                    await self._send(RecognitionRequest(number, ""))

    def close_input(self) -> None:
        """Let the process end once it has answered; the event loop reaps it."""
        self.ended = True
        if self.process.stdin is not None:
            self.process.stdin.close()

    async def end(self) -> None:
        """Kill the process; pending requests fail."""
        self.ended = True
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()

    async def _send(self, request: RecognitionRequest) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(msgspec.json.encode(request) + b"\n")
        await self.process.stdin.drain()

    async def _read(self) -> None:
        assert self.process.stdout is not None
        try:
            while (line := await self.process.stdout.readline()).endswith(b"\n"):
                numbered = _answer_decoder.decode(line)
                if (waiting := self._waiting.pop(numbered.number, None)) is not None and not waiting.done():
                    waiting.set_result(numbered)
        except ValueError as error:
            log.error("speech.answer", error=str(error))
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(Died("the speech engine stopped", RETRY_S))
        if not self.ended:
            await self.end()
            log.warning("speech.died", status=self.process.returncode)


class Workers:
    """Starts a process on demand, and ends it when it has been idle."""

    def __init__(
        self,
        command: Sequence[str],
        idle_seconds: float = IDLE_S,
        together: int = 1,
        limit: float = LIMIT_S,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Prepare; the first recording starts the process.

        Args:
            command: Starts a process that speaks `infra.engines.speech.worker_protocol`.
            idle_seconds: How long an idle process is kept.
            together: Recordings that it has at a time.
            limit: Seconds that one recording may take.
            environment: Variables besides the paths of libraries and temporary files.
        """
        self._running = asyncio.Semaphore(together)
        self.worker: Worker | None = None
        self._starting = asyncio.Lock()
        self._restarts = Restarts()
        self._closed = False
        self._idle_seconds = idle_seconds
        self._command = command
        self._environment = environment
        self._limit = limit
        self._idle_timer: asyncio.TimerHandle | None = None

    async def transcribe(self, request: RecognitionRequest) -> RecognitionResult:
        """Recognise a recording; cancelling makes the process drop it.

        Raises:
            AudioError: the recording cannot be decoded, or is too long.
            NotLoaded: the model cannot be loaded.
            Unavailable: the recogniser failed, died three times, or took too long.
        """
        return await self._restarts.call(functools.partial(self._transcribe, request), Died)

    async def _transcribe(self, request: RecognitionRequest) -> RecognitionResult:
        async with self._running:
            worker = await self._take()
            try:
                async with asyncio.timeout(self._limit):
                    answer = (await worker.ask(request)).answer
            except TimeoutError:
                # It hangs, and blocks everybody who waits for it.
                await worker.end()
                raise Unavailable("the speech engine took too long", RETRY_S) from None
            finally:
                worker.load -= 1
                self._keep_for_a_while()
        if isinstance(answer, RecognitionResult):
            return answer
        if isinstance(answer, LoadFailure):
            raise NotLoaded(answer.message)
        raise (
            AudioError(answer.message) if isinstance(answer, DecodingFailure) else Unavailable(answer.message, RETRY_S)
        )

    async def close(self) -> None:
        """End the process; waiting recordings fail with Unavailable."""
        self._closed = True
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self.worker is not None:
            await self.worker.end()

    async def _take(self) -> Worker:
        """Return a running worker with its load raised by one."""
        async with self._starting:
            if self._closed:
                raise Unavailable("the speech engine stops", RETRY_S)
            if self.worker is None or not self.worker.alive:
                self.worker = await self._start()
            self.worker.load += 1
            return self.worker

    async def _start(self) -> Worker:
        pipe = asyncio.subprocess.PIPE
        try:
            environment = bare_environment() | dict(self._environment)
            return Worker(
                await asyncio.create_subprocess_exec(
                    *self._command, stdin=pipe, stdout=pipe, limit=LINE_BYTES, env=environment
                )
            )
        except OSError as error:
            raise Unavailable(f"the speech engine cannot be started: {error.strerror}", RETRY_S) from error

    def _keep_for_a_while(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._idle_timer = asyncio.get_running_loop().call_later(self._idle_seconds, self._end_idle)

    def _end_idle(self) -> None:
        if self.worker is not None and not self.worker.load:
            self.worker.close_input()
