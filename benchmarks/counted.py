"""Runs a service that counts what it writes: `python -m benchmarks.counted FILE`, with a file of `counts`."""

import mmap
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from infra.cli import main as earshot
from streams.embedded import groups, log_store
from streams.tables import database

#: Records appended to the embedded log, its writes, and those of the tables. The log's own thread writes none of them.
COUNTS: Final = struct.Struct("3q")


@contextmanager
def mapped(file: Path) -> Iterator[mmap.mmap]:
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), COUNTS.size) as memory:
        yield memory


def counts(file: Path) -> tuple[int, ...]:
    """Return (records, writes of the log, writes of tables) so far."""
    with mapped(file) as memory:
        return COUNTS.unpack(memory[:])


def serve(file: Path) -> None:
    """Serve with counters in `file`. All that is counted happens on the event loop."""
    with mapped(file) as memory:
        _count(memory, 0, groups.Group, "_append")
        _count(memory, 1, log_store.Store, "write")
        _count(memory, 2, database.TableDatabase, "write_rows")
        sys.argv = ["earshot", "serve"]
        earshot()


def _count(memory: mmap.mmap, place: int, owner: type, name: str) -> None:
    """Count the calls of a method."""
    method = getattr(owner, name)
    at = 8 * place

    def counted(*arguments: Any) -> Any:
        memory[at : at + 8] = (int.from_bytes(memory[at : at + 8], sys.byteorder) + 1).to_bytes(8, sys.byteorder)
        return method(*arguments)

    setattr(owner, name, counted)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
