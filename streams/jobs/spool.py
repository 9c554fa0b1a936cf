"""The audio of the jobs that run, as files that the runs of a job share."""

import asyncio
import os
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Final

import msgspec

from topics import keys
from topics.errors import Unavailable

SUFFIX: Final = ".audio"


class SpoolFile(msgspec.Struct, eq=False):
    """A file, the task that fills it, and the runs that hold it."""

    path: Path
    filling: asyncio.Task[None]
    runs: set[str]


class Spool:
    """A directory of this process alone: one file a job, from the first run that asks to the end of the last.

    Loop only.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._files: dict[str, SpoolFile] = {}

    def clear(self) -> None:
        """Make the directory, without leftovers of a process that died."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for path in self.directory.glob(f"*{SUFFIX}"):
            path.unlink(missing_ok=True)

    async def take(self, job: str, run: str, read: Callable[[], AsyncGenerator[bytes, None]]) -> Path:
        """Return the job's file once it is complete; it stays until `give_back`, which must follow in any case.

        Raises:
            Unavailable: the disk does not take it.
            Exception: what `read` raises, for every run that waits for the file.
        """
        file = self._files.get(job)
        if file is None:
            file = self._files[job] = self._begin(job, read)
        file.runs.add(run)
        # A run that is cancelled must not stop the filling for the others.
        await asyncio.shield(file.filling)
        return file.path

    def give_back(self, job: str, run: str) -> None:
        """End a run's use of the job's file, if it has one; the last one removes the file."""
        file = self._files.get(job)
        if file is None or run not in file.runs:
            return
        file.runs.remove(run)
        if not file.runs:
            self.drop(job)

    def drop(self, job: str) -> None:
        """Remove the job's file even while runs hold it: the job may come again with other audio."""
        file = self._files.pop(job, None)
        if file is not None:
            file.filling.cancel()
            file.path.unlink(missing_ok=True)

    def _begin(self, job: str, read: Callable[[], AsyncGenerator[bytes, None]]) -> SpoolFile:
        try:
            file, name = tempfile.mkstemp(SUFFIX, dir=self.directory)
        except OSError as error:
            raise _refused(error) from error
        os.close(file)
        return SpoolFile(
            Path(name), asyncio.create_task(_fill(Path(name), read()), name=f"spool-{keys.shown(job)}"), set()
        )


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
