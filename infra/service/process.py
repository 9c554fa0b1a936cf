"""A process that keeps data and serves: how it prepares, and what ends it."""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from infra import logs
from infra.service import directories, limits
from infra.settings import Settings
from streams.cores import LOOP_SLICE, wake_promptly


def run_process(settings: Settings, main: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Prepare this process to keep data and serve, and run its main task."""
    lane = settings.lane.number if settings.lane.count > 1 else None
    logs.configure(settings.log_level, settings.log_format, settings.secrets, node=settings.advertise, lane=lane)
    os.umask(directories.UMASK)
    limits.forbid_core_dumps()
    limits.check(settings)
    wake_promptly(LOOP_SLICE)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


async def first_of(*events: asyncio.Event) -> None:
    """Wait until one of the events is set."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()


def on_stop(stop: Callable[[], None]) -> None:
    """Call `stop` on SIGINT, SIGTERM and SIGHUP."""
    loop = asyncio.get_running_loop()
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup leaves it so
        numbers.append(signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, stop)
