"""A snapshot of a log, taken by hard links from outside the process that writes it."""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from streams.embedded.errors import LogError, LogLocked
from streams.embedded.lock import DirectoryLock

#: In the same directory as the log, because hard links need one file system.
PINNED: Final = "pinned"
#: The list of files changes about every 32 MiB; linking them all takes milliseconds.
ATTEMPTS: Final = 200
PAUSE_SECONDS: Final = 0.02
_LINKED: Final = ("*.sst", "*.blob", "*.log")


@contextmanager
def pinned(directory: Path) -> Iterator[Path]:
    """Yield the path of a complete snapshot of a directory's log, whether or not the log is open.

    Its write-ahead log may grow by whole groups while it is copied. Raise LogError if another backup is being made, or
    the directory does not support hard links.
    """
    path = directory / PINNED
    try:
        lock = DirectoryLock(path)
    except LogLocked as error:
        raise LogError(f"another backup of the log in {directory} is being made: wait for its end") from error
    try:
        _pin(directory, path)
        yield path
        if not (path / "CURRENT").exists():
            raise LogError(
                f"the backup of the log in {directory} took too long: the service must erase what was deleted since it "
                "began; make the backup on a faster disk"
            )
    finally:
        with suppress(OSError):
            shutil.rmtree(path)
        lock.release()


def unpin(directory: Path, seconds: float) -> None:
    """Delete the remains of a killed backup, and the snapshot of one that has run for `seconds`, which fails then."""
    path = directory / PINNED
    if not path.exists():
        return
    lock = None
    with suppress(LogError):
        lock = DirectoryLock(path)
    try:
        with suppress(FileNotFoundError):  # The backup has just ended.
            if lock is not None or time.time() - (path / "CURRENT").stat().st_mtime > seconds:
                _remove(path)
    finally:
        if lock is not None:
            lock.release()


def _pin(directory: Path, path: Path) -> None:
    try:
        for _ in range(ATTEMPTS):
            _remove(path)  # Also removes the remains of a killed backup.
            if _link(directory / "log", path):
                return
            time.sleep(PAUSE_SECONDS)
    except OSError as error:  # A failed write names no file.
        place = error.filename or path
        raise LogError(f"the log in {directory} cannot be copied: {error.strerror} ({place})") from error
    raise LogError(f"the files of the log in {directory} change too fast to be copied: try again")


def _remove(path: Path) -> None:
    for file in path.iterdir():
        if file.name != "lock":
            file.unlink()


def _link(log: Path, into: Path) -> bool:
    """Link the files of a log; return False if the list of its files changed meanwhile, so that some may be missing.

    RocksDB deletes a file only after removing it from the list. While the list is unchanged, all listed files exist.
    """
    current, manifest = _list(log)
    try:
        for kind in _LINKED:
            for file in log.glob(kind):
                os.link(file, into / file.name)
    except FileNotFoundError:
        return False
    if (current, manifest) != _list(log):
        return False
    (into / "CURRENT").write_bytes(current)
    (into / current.decode().strip()).write_bytes(manifest)
    return True


def _list(log: Path) -> tuple[bytes, bytes]:
    current = (log / "CURRENT").read_bytes()
    return current, (log / current.decode().strip()).read_bytes()
