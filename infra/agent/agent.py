"""The agent: listens to the sources of a file, keeps what the service has not acknowledged, and follows changes."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Final, TypeVar

import structlog

from earshot_client import AsyncClient
from infra.agent.capture import Fault, Format, Heard, capture
from infra.agent.clock import Clock
from infra.agent.feed import Feed, Pauses
from infra.agent.flac import Note
from infra.agent.folder import Folder
from infra.agent.sources import Source, Sources, read
from infra.agent.spool import Spool, settle
from infra.errors import Unfit
from infra.service_manager import ServiceManager
from infra.urls import redact_url
from topics.errors import EarshotError

T = TypeVar("T")

log: Final = structlog.stdlib.get_logger("infra.agent")

#: Seconds for which a source may be away before that is an event, so that a connection that is cut and back is none.
LOST_SECONDS: Final = 5.0
#: Seconds after which a connection that brings audio works.
STABLE_SECONDS: Final = 5.0
#: Seconds of digital silence before it is an event, and before the source is reconnected; the latter doubles each time.
SILENT_SECONDS: Final = 10.0
SILENT_RECONNECT: Final = 60.0
MOST_SILENT_RECONNECT: Final = 3600.0
#: Seconds without a block after which a capture is given up; FFmpeg gives up earlier, except for microphones.
STUCK_SECONDS: Final = 60.0
#: Seconds for the last packet to come at a stop, and for all to reach the service; the rest goes to the disk.
STOP_SECONDS: Final = 3.0
SETTLE_SECONDS: Final = 0.5


def in_thread(function: Callable[[], T]) -> asyncio.Future[T]:
    """Run a function in a thread of its own, which does not delay the end of the process."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: Callable[[], object]) -> None:
        if not future.done():
            result()

    def run() -> None:
        try:
            value = function()
            end = partial(settle, lambda: future.set_result(value))
        except BaseException as error:
            failure = error
            end = partial(settle, lambda: future.set_exception(failure))
        with suppress(RuntimeError):  # The loop is closed.
            loop.call_soon_threadsafe(end)

    Thread(target=run, name="earshot-source", daemon=True).start()
    return future


class Listener:
    """One source: captures it, again and again, into its spool. Loop only."""

    def __init__(self, source: Source, spool: Spool, clock: Clock) -> None:
        self._source, self._spool, self._clock = source, spool, clock
        self._stopped = Event()
        self._stopping = False
        self._format: Format | None = None
        self._pauses = Pauses()
        #: When this connection began, by the loop's clock.
        self._opened = 0.0
        self._blocks = 0
        #: When it was lost (ms), why, and whether an event said so.
        self._lost: int | None = None
        self._reason = ""
        self._lost_said = False
        #: When digital silence began (ms), whether an event said so, and when the source is reconnected for it.
        self._silent: int | None = None
        self._silent_said = False
        self._silent_limit = SILENT_RECONNECT

    async def run(self) -> None:
        """Capture until stopped."""
        loop = asyncio.get_running_loop()

        def deliver(heard: Heard) -> None:
            with suppress(RuntimeError):  # The loop is closed.
                loop.call_soon_threadsafe(self._heard, heard)

        def changed(form: Format) -> None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._changed, form)

        while not self._stopping:
            self._stopped, self._opened = (stopped := Event()), loop.time()
            try:
                reason = await self._alive(
                    in_thread(partial(capture, self._source, self._clock, stopped, deliver, changed))
                )
            except Fault as fault:
                reason = str(fault)
            except Exception:
                log.exception("source failed", source=self._source.name)
                reason = "an error of the agent"
            finally:
                stopped.set()
            if not self._stopping:
                self._ended(reason)
                await asyncio.sleep(self._pauses.next())

    async def _alive(self, capturing: asyncio.Future[None]) -> str:
        """Wait for the end of a capture, or until it seems stuck, as a driver may be; return the reason."""
        while True:
            blocks = self._blocks
            await asyncio.wait([capturing], timeout=STUCK_SECONDS)
            if capturing.done():
                capturing.result()
                return "digital silence: the microphone may be muted"
            if self._blocks == blocks:
                capturing.cancel()
                return f"no audio for {STUCK_SECONDS:g} s, and it cannot be interrupted"

    def stop(self) -> None:
        """End the capture at the next packet."""
        self._stopping = True
        self._stopped.set()

    def _ended(self, reason: str) -> None:
        if reason != self._reason:
            log.warning("source lost", source=self._source.name, place=self._source.place, reason=reason)
        self._reason = reason
        if self._lost is None:
            self._lost = round(self._clock.now() * 1000)
            asyncio.get_running_loop().call_later(LOST_SECONDS, self._say_lost, self._lost)

    def _say_lost(self, lost: int) -> None:
        if self._lost == lost and not self._stopping:
            self._lost_said = True
            self._spool.note(Note("source.lost", lost, self._reason))

    def _changed(self, form: Format) -> None:
        if form != self._format:
            event = "source opened" if self._format is None else "source changed"
            log.info(event, source=self._source.name, place=self._source.place, format=str(form))
        self._format = form

    def _heard(self, heard: Heard) -> None:
        if self._lost is not None:
            seconds = (heard.at_ms - self._lost) / 1000
            log.warning("source back", source=self._source.name, seconds=round(seconds, 1))
            if self._lost_said:
                self._spool.note(Note("source.back", heard.at_ms))
            self._lost, self._lost_said, self._reason = None, False, ""
        self._blocks += 1
        # A recording at a URL comes at once, and ends.
        if asyncio.get_running_loop().time() - self._opened > STABLE_SECONDS:
            self._pauses.reset()
        self._watch_silence(heard)
        self._spool.push(heard.at_ms, heard.data)

    def _watch_silence(self, heard: Heard) -> None:
        if not heard.silent:
            if self._silent_said:
                log.warning("source back", source=self._source.name, silent=True)
                self._spool.note(Note("source.back", heard.at_ms))
            self._silent, self._silent_said, self._silent_limit = None, False, SILENT_RECONNECT
            return
        if self._silent is None:
            self._silent = heard.at_ms
        seconds = (heard.at_ms - self._silent) / 1000
        if seconds >= SILENT_SECONDS and not self._silent_said:
            self._silent_said = True
            log.warning("source silent", source=self._source.name, seconds=seconds)
            self._spool.note(Note("source.silent", self._silent, f"digital silence for {SILENT_SECONDS:g} s"))
        if seconds >= self._silent_limit:
            self._silent_limit = seconds + min(2 * self._silent_limit, MOST_SILENT_RECONNECT)
            self._stopped.set()


class _Running:
    """The tasks of a source."""

    def __init__(self, source: Source, client: AsyncClient, directory: Path, clock: Clock) -> None:
        self.source = source
        self.spool: Spool | None = None
        self._listener: Listener | None = None
        if source.folder is not None:
            self.capturing = self._sending = asyncio.create_task(Folder(source, client, directory / source.key).run())
            return
        self.spool = Spool(directory / source.key, source.name)
        self._listener = Listener(source, self.spool, clock)
        self.capturing = asyncio.create_task(self._listener.run())
        self._sending = asyncio.create_task(Feed(source, client, self.spool).run())

    async def stop(self) -> None:
        """End the capture, send what there is for a while, and write the rest to the disk."""
        if self._listener is not None and self.spool is not None:
            self._listener.stop()
            await asyncio.wait([self.capturing], timeout=STOP_SECONDS)
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    await self.spool.drained()
        for task in {self.capturing, self._sending}:
            task.cancel()
        await asyncio.gather(self.capturing, self._sending, return_exceptions=True)
        if self.spool is not None:
            await self.spool.settle(every=True)


class Agent:
    """All sources of a file. Loop only."""

    def __init__(self, path: Path, sources: Sources, configure: Callable[[Sources], object]) -> None:
        """Make an agent; `configure` is called with what a changed file says, before it is used.

        Raises:
            Unfit: another agent uses the spool, or it cannot be made.
        """
        self._path, self._sources, self._configure = path, sources, configure
        self._lock = _locked(sources.spool)
        self._clock = Clock()
        self._running: dict[str, _Running] = {}
        self._client = AsyncClient(sources.url, sources.key)
        self._reload = asyncio.Event()
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Listen until SIGTERM or Ctrl-C; SIGHUP reads the file again."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload.set)
        async with self._client:
            self._start(self._sources)
            log.info("agent started", sources=len(self._running), service=redact_url(self._sources.url))
            others = [asyncio.create_task(ServiceManager().keep()), asyncio.create_task(self._settle())]
            try:
                await self._follow()
            finally:
                for task in others:
                    task.cancel()
                await asyncio.gather(*others, return_exceptions=True)
                await asyncio.gather(*(one.stop() for one in self._running.values()))
        waiting = sum(one.spool.seconds for one in self._running.values() if one.spool)
        log.info("agent stopped", seconds_on_disk=waiting)

    async def _follow(self) -> None:
        stop = asyncio.create_task(self._stop.wait())
        while not stop.done():
            reload = asyncio.create_task(self._reload.wait())
            await asyncio.wait([stop, reload], return_when=asyncio.FIRST_COMPLETED)
            reload.cancel()
            if self._reload.is_set():
                self._reload.clear()
                await self._change()

    async def _change(self) -> None:
        try:
            fresh = await asyncio.to_thread(read, self._path)
            if (fresh.url, fresh.key, fresh.spool) != (self._sources.url, self._sources.key, self._sources.spool):
                raise Unfit(f"{self._path}: the service, its key or the spool changed: restart the agent")
        except EarshotError as error:
            log.error("file not reloaded", reason=str(error))
            return
        self._configure(fresh)
        changed = [one for one in self._running.values() if fresh.sources.get(one.source.name) != one.source]
        await asyncio.gather(*(one.stop() for one in changed))
        for one in changed:
            del self._running[one.source.name]
        before = set(self._running)
        self._start(fresh)
        log.info(
            "file reloaded", started=sorted(set(self._running) - before), stopped=[one.source.name for one in changed]
        )

    def _start(self, sources: Sources) -> None:
        self._sources = sources
        for name, source in sources.sources.items():
            if name not in self._running:
                try:
                    self._running[name] = _Running(source, self._client, sources.spool, self._clock)
                except (OSError, EarshotError) as error:  # The others go on.
                    log.error("source not started", source=name, reason=str(error))

    async def _settle(self) -> None:
        while True:
            await asyncio.sleep(SETTLE_SECONDS)
            try:
                await settle([one.spool for one in self._running.values() if one.spool], self._sources.spool_bytes)
            except Exception:
                log.exception("spool failed")


def _locked(directory: Path) -> int:
    """Make the spool and lock it; return the descriptor of the lock, which the process keeps.

    Raises:
        Unfit: another agent has the lock, or this user may not write there.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Unfit(f"another agent uses the spool {directory}") from None
    except OSError as error:
        raise Unfit(f"the spool {directory} cannot be used: {error.strerror}") from None
    return lock
