"""The audio of running jobs, as files that a job's runs share."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Final

import msgspec

from topics import keys
from topics.errors import Unavailable

SUFFIX: Final = ".audio"
NO_SPACE: Final = "there is no room for the audio of jobs now: the disk must keep EARSHOT_UPLOAD_FREE_BYTES free"


class SpoolFile(msgspec.Struct, eq=False):
    """A file, the task that fills it, and the runs that use it."""

    path: Path
    filling: asyncio.Task[None]
    runs: set[str]


class Spool:
    """A directory of this process only, with one file per job from its first run's start to its last run's end.

    Loop only, except `check_room`.
    """

    def __init__(self, directory: Path, free_bytes: int) -> None:
        """Keep the files in `directory`, and `free_bytes` of its disk free."""
        self.directory = directory
        self._free_bytes = free_bytes
        self._files: dict[str, SpoolFile] = {}
        #: Bytes still to be written to the files that are being filled.
        self._promised: dict[Path, int] = {}

    def clear(self) -> None:
        """Create the directory and delete the leftovers of an earlier process."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for path in self.directory.glob(f"*{SUFFIX}"):
            path.unlink(missing_ok=True)

    async def take(self, job: str, run: str, size: int, read: Callable[[], AsyncGenerator[bytes, None]]) -> Path:
        """Return the job's complete file, of `size` bytes; it stays until `give_back`, which must always follow.

        Raises:
            Unavailable: the disk has no room for it or does not accept it, or the job was removed.
            Exception: the error of `read`, for every run that waits for the file.
        """
        file = self._files.get(job)
        if file is None:
            # Together, files that fit one by one could fill the disk, and then all of them would fail.
            self.check_room(size + sum(self._promised.values()))
            file = self._files[job] = self._begin(job, size, read)
        file.runs.add(run)
        try:
            # Cancelling one run must not stop the filling for others.
            await asyncio.shield(file.filling)
        except asyncio.CancelledError:
            reader = asyncio.current_task()
            if file.filling.cancelled() and reader is not None and not reader.cancelling():
                raise Unavailable("the job was removed") from None
            raise
        return file.path

    def check_room(self, size: int) -> None:
        """Check that the disk has room for `size` more bytes. Any thread.

        Raises:
            Unavailable: it would have less free space than it must keep.
        """
        try:
            free = shutil.disk_usage(self.directory).free
        except OSError as error:
            raise _refused(error) from error
        if free - size < self._free_bytes:
            raise Unavailable(NO_SPACE)

    def give_back(self, job: str, run: str) -> None:
        """End a run's use of the job's file, if any; the last run removes the file."""
        file = self._files.get(job)
        if file is None or run not in file.runs:
            return
        file.runs.remove(run)
        if not file.runs:
            self.drop(job)

    def drop(self, job: str) -> None:
        """Remove the job's file even if runs use it: the job may return with other audio."""
        file = self._files.pop(job, None)
        if file is not None:
            file.filling.cancel()
            file.path.unlink(missing_ok=True)

    def _begin(self, job: str, size: int, read: Callable[[], AsyncGenerator[bytes, None]]) -> SpoolFile:
        try:
            descriptor, name = tempfile.mkstemp(SUFFIX, dir=self.directory)
        except OSError as error:
            raise _refused(error) from error
        os.close(descriptor)
        path = Path(name)
        filling = asyncio.create_task(self._fill(path, read()), name=f"spool-{keys.shown(job)}")
        self._promised[path] = size
        filling.add_done_callback(lambda _: self._promised.pop(path))
        return SpoolFile(path, filling, set())

    async def _fill(self, path: Path, parts: AsyncGenerator[bytes, None]) -> None:
        # Close the parts at once even if the disk is full: a reader of the log may hold a lock until then.
        async with aclosing(parts):
            async for part in parts:
                try:
                    await asyncio.to_thread(self._append, path, part)
                except OSError as error:
                    raise _refused(error) from error
                self._promised[path] -= len(part)

    def _append(self, path: Path, data: bytes) -> None:
        # Again: others write to the disk too.
        self.check_room(len(data))
        # Opened each time: after a cancellation, the orphaned thread holds no file open and creates none.
        with path.open("r+b") as file:
            file.seek(0, os.SEEK_END)
            file.write(data)


def _refused(error: OSError) -> Unavailable:
    return Unavailable(f"the spool cannot be written: {error.strerror}")
