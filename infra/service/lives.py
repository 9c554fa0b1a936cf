"""Finds out how earlier processes on this data directory ended: by their own crash, or killed from outside.

A crash leaves a trace in a file (`faulthandler`). Running out of memory raises a counter of the kernel, which covers
the whole machine, so any process that it killed counts. A process that left neither was killed, or lost power.
"""

import contextlib
import faulthandler
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import structlog

from infra.disk import replace_file
from streams import memory
from streams.folding.lives import Lives, name_life

log = structlog.get_logger("infra.service")

#: Both are in the data directory.
LIVES: Final = "lives"
CRASH: Final = "crash"
#: The most killed lives kept; a job may wait through several for its turn.
MOST_KILLED: Final = 100
#: The most characters of a trace, which has all threads, in the log.
TRACE_CHARACTERS: Final = 4000
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


class Remembered(msgspec.Struct, frozen=True):
    """The contents of `LIVES`: the last life, the machine's state when it began, and earlier lives that were killed."""

    life: str
    boot: str
    out_of_memory: int
    killed: tuple[str, ...] = ()


@contextlib.contextmanager
def begin_life(data: Path) -> Iterator[Lives]:
    """Begin a life in a data directory that no other process uses, and trace crashes there until it ends.

    This never prevents a start: if the files cannot be read or written, nothing is known about earlier lives.
    """
    killed = _killed(data)
    life = Remembered(name_life(), _boot(), memory.ended_for_it(), killed)
    with contextlib.ExitStack() as stack:
        try:
            replace_file(data / LIVES, msgspec.json.encode(life))
            # Only now, so that a process that ends earlier does not lose the trace.
            trace = stack.enter_context((data / CRASH).open("w"))
            faulthandler.enable(trace)
            stack.callback(faulthandler.disable)
        except OSError as error:
            log.warning("lives.not_kept", error=error.strerror)
        yield Lives(life.life, frozenset(killed))


def _killed(data: Path) -> tuple[str, ...]:
    """Return the lives that were killed from outside, latest last."""
    try:
        before = msgspec.json.decode((data / LIVES).read_bytes(), type=Remembered)
    except (OSError, msgspec.MsgspecError):
        return ()
    try:
        trace = (data / CRASH).read_text(errors="replace")
    except OSError:
        return before.killed
    if trace:
        log.error("service.crashed", trace=trace[:TRACE_CHARACTERS])
        return before.killed
    if before.boot == _boot() and before.out_of_memory != memory.ended_for_it():
        return before.killed
    return (*before.killed, before.life)[-MOST_KILLED:]


def _boot() -> str:
    """Return the id of this boot of the machine, or "" if unknown."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""
