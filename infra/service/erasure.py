"""Erases what was deleted from the files of the data directory, after some hours of running time at the latest."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from infra.db.database import Database
from infra.settings import Settings
from infra.urls import Embedded
from streams.embedded.pinned import unpin
from streams.node.node import Node
from topics.errors import EarshotError

log = structlog.get_logger("infra.service")

#: A file among the tables: the seconds that services ran since the last round began.
FILE: Final = "erasure"
#: Seconds between two notes in the file: a crash loses the time since the last one.
NOTE_SECONDS: Final = 10.0
#: Seconds until a round that failed is repeated.
AGAIN_SECONDS: Final = 600.0


async def keep_erasing(settings: Settings, directory: Path, node: Node, database: Database) -> None:
    """Do a round after each `erase_seconds` of running time, counted in a file of `directory`."""
    await repeat(directory / FILE, settings.erase_seconds, partial(_erase, settings, node, database))


async def repeat(file: Path, seconds: float, erase: Callable[[], Awaitable[None]]) -> None:
    """Call `erase` once processes have run for `seconds` since the last call began; repeat it if it fails.

    `file` has the time, so that restarts count. Time in which no process runs does not.
    """
    ran, at = _read(file), time.monotonic()
    pause = min(NOTE_SECONDS, seconds / 10)
    try:
        while True:
            await asyncio.sleep(min(pause, max(0.0, seconds - ran)))
            ran, at = ran + time.monotonic() - at, time.monotonic()
            # If this process dies during a round, the next one begins with it.
            _note(file, ran)
            if ran >= seconds:
                try:
                    await erase()
                    ran = 0.0
                    log.info("data.erased", seconds=round(time.monotonic() - at, 2))
                except EarshotError as error:
                    ran = max(0.0, seconds - AGAIN_SECONDS)
                    log.warning("data.not_erased", error=str(error))
    finally:
        _note(file, ran + time.monotonic() - at)


def _note(file: Path, seconds: float) -> None:
    with suppress(OSError):  # The disk is full; the next note overwrites this one.
        file.write_text(f"{seconds:.1f}\n")


def _read(file: Path) -> float:
    """Return the noted time; none without a file. An unreadable one is of a crash: a round is due."""
    try:
        ran = float(file.read_text())
    except OSError:
        return 0.0
    except ValueError:
        return math.inf
    return ran if ran >= 0 else math.inf


async def _erase(settings: Settings, node: Node, database: Database) -> None:
    """Do one round: what was deleted before is then in no file of this lane, nor of the machine if it is the first.

    Raises:
        EarshotError: not everything was erased.
    """
    if isinstance(settings.log, Embedded):
        await asyncio.to_thread(unpin, settings.log.directory, settings.erase_seconds)
    try:
        await node.erase()
    finally:
        if not settings.lane.number:  # The lanes share it, and each erasure writes it anew.
            await database.erase()
