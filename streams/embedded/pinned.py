"""A log as it is at one moment, from outside of the process that writes it: hard links keep its files from going."""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from streams.embedded.errors import LogError, LogLocked
from streams.embedded.lock import DirectoryLock

#: Beside the log, on its file system, because a hard link leads nowhere else.
PINNED: Final = "pinned"
#: The list of files changes each 32 MiB or so; to link them all takes milliseconds.
ATTEMPTS: Final = 200
PAUSE_SECONDS: Final = 0.02
_LINKED: Final = ("*.sst", "*.blob", "*.log")


@contextmanager
def pinned(directory: Path) -> Iterator[Path]:
    """Yield the path of a log that is all of the one in a directory at a moment after the call, open or not.

    Its write-ahead log may grow by whole groups while it is copied. Raise LogError if another one is being made, or
    the directory takes no hard links.
    """
    path = directory / PINNED
    try:
        lock = DirectoryLock(path)
    except LogLocked as error:
        raise LogError(f"another backup of the log in {directory} is being made: wait for its end") from error
    try:
        for _ in range(ATTEMPTS):
            _remove(path)  # And what a backup left that was killed.
            if _link(directory / "log", path):
                break
            time.sleep(PAUSE_SECONDS)
        else:
            raise LogError(f"the files of the log in {directory} change too fast to be copied: try again")
        yield path
    except OSError as error:
        raise LogError(f"the log in {directory} cannot be copied: {error.strerror} ({error.filename})") from error
    finally:
        with suppress(OSError):
            shutil.rmtree(path)
        lock.release()


def _remove(path: Path) -> None:
    for file in path.iterdir():
        if file.name != "lock":
            file.unlink()


def _link(log: Path, into: Path) -> bool:
    """Link the files of a log; False if the list of its files changed meanwhile, so that some may be missing.

    A file goes only after the list of files says so. While that stays the same, all that it names are there.
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
