"""A lock file that admits one process to a data directory, and names it."""

import fcntl
import os
from pathlib import Path

from streams.embedded.errors import LogError, LogLocked


class DirectoryLock:
    """Locks a directory, created if missing; the kernel releases the lock when the process dies.

    One thread at a time.

    Raises:
        LogLocked: another process holds the lock; the message has its id.
        LogError: the directory cannot be created, written or locked.
    """

    def __init__(self, directory: Path) -> None:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._file = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise LogError(
                f"the data directory {directory} cannot be used ({error.strerror}): check path and owner"
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(self._file, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._file)
            locked = LogLocked(f"the data directory {directory} is in use by process {holder}")
            locked.holder = int(holder) if holder.isdigit() else 0
            raise locked from error
        except OSError as error:
            os.close(self._file)
            raise LogError(
                f"the data directory {directory} cannot be locked ({error.strerror}): use a file system with locks"
            ) from error
        try:
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)
        except OSError:  # The process id is a courtesy: a full disk must not keep the log from opening.
            pass

    @classmethod
    def inherited(cls, descriptor: int) -> "DirectoryLock":
        """Return the lock that a parent process holds by this descriptor; it lasts until both have released it."""
        lock = cls.__new__(cls)
        lock._file = descriptor
        return lock

    @property
    def descriptor(self) -> int:
        """The open file that holds the lock."""
        return self._file

    def release(self) -> None:
        """Release the directory. Idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
