"""The audio of the jobs that run, as files that the runs of a job share."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Final

import msgspec

from topics.errors import Unavailable

SUFFIX: Final = ".audio"


class Copy(msgspec.Struct, eq=False):
    """A file, the task that fills it, and the runs that hold it."""

    path: Path
    filling: asyncio.Task[None]
    runs: set[str]


class Spool:
    """A directory of this process alone: one file a job, from the first run that asks to the end of the last."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._copies: dict[str, Copy] = {}

    def clear(self) -> None:
        """Make the directory, without what a process that died left in it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for left in self.directory.glob(f"*{SUFFIX}"):
            left.unlink(missing_ok=True)

    async def take(self, job: str, run: str, read: Callable[[], AsyncGenerator[bytes, None]]) -> Path:
        """Return the job's file once all of it is there; it stays until `give_back`, which is due however this ends.

        Raises:
            Unavailable: the disk does not take it; and what `read` raises, to all who wait for the file.
        """
        copy = self._copies.get(job)
        if copy is None:
            copy = self._copies[job] = self._begin(job, read)
        copy.runs.add(run)
        # One who no longer waits must not stop the filling for the others.
        await asyncio.shield(copy.filling)
        return copy.path

    def give_back(self, job: str, run: str) -> None:
        """End a run's use of the job's file, if it has one; the last one removes it."""
        copy = self._copies.get(job)
        if copy is None or run not in copy.runs:
            return
        copy.runs.remove(run)
        if not copy.runs:
            self.drop(job)

    def drop(self, job: str) -> None:
        """Remove the job's file, whoever holds it: the job may come again with other audio."""
        copy = self._copies.pop(job, None)
        if copy is not None:
            copy.filling.cancel()
            copy.path.unlink(missing_ok=True)

    def _begin(self, job: str, read: Callable[[], AsyncGenerator[bytes, None]]) -> Copy:
        try:
            file, name = tempfile.mkstemp(SUFFIX, dir=self.directory)
        except OSError as error:
            raise _refused(error) from error
        os.close(file)
        return Copy(Path(name), asyncio.create_task(_fill(Path(name), read()), name=f"spool-{job}"), set())


async def _fill(path: Path, parts: AsyncGenerator[bytes, None]) -> None:
    # Closed at once also when the disk is full: a reader of the log may hold a lock until it is.
    async with aclosing(parts):
        async for part in parts:
            try:
                await asyncio.to_thread(_append, path, part)
            except OSError as error:
                raise _refused(error) from error


def _append(path: Path, data: bytes) -> None:
    # Opened each time: a thread that is left alone by a cancelled task holds no file that others close, and makes none.
    with path.open("r+b") as file:
        file.seek(0, os.SEEK_END)
        file.write(data)


def _refused(error: OSError) -> Unavailable:
    return Unavailable(f"the spool cannot be written: {error.strerror}")
