"""The voice store: recordings in a directory, or in an object store that fsspec knows by URL."""

import asyncio
import os
import re
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol, TypeVar

from infra.disk import sync
from infra.extras import how_to_install
from topics.errors import ServiceError, Unavailable

T = TypeVar("T")

ANSWER_SECONDS: Final = 30.0
#: Concurrent calls; further calls wait, within their own timeout.
THREADS: Final = 4
#: Attempts to make a directory that others may delete.
TRIES: Final = 10
#: Bytes of a recording in memory at once; S3 accepts no parts below 5 MiB.
PIECE: Final = 8 * 1024 * 1024
#: Timeouts of the S3 client; its defaults are longer than a call may take.
_S3: Final = {"connect_timeout": 5, "read_timeout": 15, "retries": {"max_attempts": 1}}

_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*")


class FsspecVoices:
    """Implements `streams.speakers.speaker_store.VoiceFiles`. Every call may raise Unavailable, after 30 s at most."""

    def __init__(self, url: str, timeout: float = ANSWER_SECONDS) -> None:
        """Open a store: a directory by its path or `file://` URL, made with the first file, or `s3://bucket/prefix`.

        Raises:
            ServiceError: an invalid URL, or a store whose package is not installed.
        """
        self._store = _open(url)
        self._timeout = timeout
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="voices")

    async def keep(self, voice: str, file: BinaryIO) -> None:
        """Store the rest of `file` under a name, from its position to its end; all of it or nothing.

        A thread reads `file`, and may go on for a while after Unavailable was raised.
        """
        await self._answer(lambda: self._store.keep(_checked_name(voice), file))

    async def fetch(self, voice: str, into: BinaryIO) -> bool:
        return await self._answer(lambda: self._store.fetch(_checked_name(voice), into))

    async def discard(self, voices: Sequence[str]) -> None:
        def discard_all() -> None:
            for voice in voices:
                self._store.discard(_checked_name(voice))

        await self._answer(discard_all)

    def close(self) -> None:
        """Accept no more calls; cancel those that wait for a thread."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _answer(self, call: Callable[[], T]) -> T:
        try:
            async with asyncio.timeout(self._timeout):
                return await asyncio.get_running_loop().run_in_executor(self._threads, call)
        # Stores raise errors of their own. Their messages stay hidden, because they may contain the address and key.
        except Exception as error:
            raise Unavailable(f"the voice store does not answer: {_cause(error)}") from error


class _Store(Protocol):
    """A blocking store; it may raise anything."""

    def keep(self, voice: str, file: BinaryIO) -> None: ...

    def fetch(self, voice: str, into: BinaryIO) -> bool: ...

    def discard(self, voice: str) -> None: ...


class _Directory:
    """Files private to their owner, written under a temporary name and renamed once they are on disk."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def keep(self, voice: str, file: BinaryIO) -> None:
        path = self._root / voice
        part = _part(path)
        try:
            with self._create(part) as written:
                shutil.copyfileobj(file, written, PIECE)
                written.flush()
                os.fsync(written.fileno())
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        sync(path.parent)

    def fetch(self, voice: str, into: BinaryIO) -> bool:
        try:
            with (self._root / voice).open("rb") as kept:
                shutil.copyfileobj(kept, into, PIECE)
        except FileNotFoundError:
            return False
        return True

    def discard(self, voice: str) -> None:
        path = self._root / voice
        for one in path, _part(path):
            # If this is not a directory, there cannot be a file below it.
            with suppress(FileNotFoundError, NotADirectoryError):
                one.unlink()
        with suppress(OSError):
            for parent in self._parents(path):
                parent.rmdir()

    def _parents(self, path: Path) -> list[Path]:
        """Return the directories between a file and the root, deepest first."""
        return [parent for parent in path.parents if parent.is_relative_to(self._root) and parent != self._root]

    def _create(self, path: Path) -> BinaryIO:
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for _ in range(TRIES):
            # The directory is deleted with its last other file, perhaps just now. `mkdir` fails if it vanishes before
            # the check.
            with suppress(FileNotFoundError, FileExistsError):
                for parent in reversed(self._parents(path)):
                    parent.mkdir(mode=0o700, exist_ok=True)
                return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")
        raise FileNotFoundError(path)


class _Objects:
    """Objects of any store that fsspec knows."""

    def __init__(self, files: Any, root: str) -> None:
        self._files = files
        self._root = root.rstrip("/")

    def keep(self, voice: str, file: BinaryIO) -> None:
        written = self._files.open(self._path(voice), "wb", block_size=PIECE, autocommit=False)
        try:
            with written:
                shutil.copyfileobj(file, written, PIECE)
            written.commit()
        except BaseException:
            written.discard()
            raise

    def fetch(self, voice: str, into: BinaryIO) -> bool:
        try:
            with self._files.open(self._path(voice), "rb", block_size=PIECE) as kept:
                shutil.copyfileobj(kept, into, PIECE)
        except FileNotFoundError:
            return False
        return True

    def discard(self, voice: str) -> None:
        with suppress(FileNotFoundError):
            self._files.rm_file(self._path(voice))

    def _path(self, voice: str) -> str:
        return f"{self._root}/{voice}"


def local_directory(url: str) -> Path | None:
    """Return the directory that a store's URL names; None for a store elsewhere."""
    if "://" in url and not url.startswith("file://"):
        return None
    return Path(url.removeprefix("file://")).expanduser().absolute()


def _open(url: str) -> _Store:
    if directory := local_directory(url):
        return _Directory(directory)
    scheme = url.partition("://")[0]
    options = {"config_kwargs": _S3} if scheme == "s3" else {}
    try:
        # Imported here: it takes a tenth of a second, and a directory does not need it.
        from fsspec.core import url_to_fs

        return _Objects(*url_to_fs(url, skip_instance_cache=True, use_listings_cache=False, **options))
    except ImportError as error:
        package = how_to_install("s3fs" if scheme == "s3" else error.name or "") or str(error)
        raise ServiceError(f"voices cannot be kept at {scheme}:// yet: {package}") from error
    except Exception as error:
        raise ServiceError(f"voices cannot be kept at this {scheme}:// URL: {type(error).__name__}") from error


def _checked_name(voice: str) -> str:
    if not _NAME.fullmatch(voice):
        raise ValueError("no name of a voice file")
    return voice


def _part(path: Path) -> Path:
    """Return the path of a file while it is written; no voice file's name begins with a dot."""
    return path.with_name(f".{path.name}.part")


def _cause(error: Exception) -> str:
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number) if number else type(error).__name__
