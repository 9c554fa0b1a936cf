"""Detects that a file or directory of the service was removed or replaced: later writes to it are lost."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from topics.errors import ServiceError

POLL_SECONDS: Final = 1.0


async def watch_files(paths: Sequence[Path]) -> None:
    """Check every second; raise ServiceError once a file or directory that was there was removed or replaced."""
    first = await asyncio.to_thread(_look, paths)
    while True:
        await asyncio.sleep(POLL_SECONDS)
        now = await asyncio.to_thread(_look, paths)
        for path, was in first.items():
            if was is not None and now[path] != was:
                state = "removed" if now[path] is None else "replaced"
                raise ServiceError(f"{path} was {state} while the service runs: what is written to it is lost")


def _look(paths: Sequence[Path]) -> Mapping[Path, tuple[int, int] | None]:
    return {path: _identity(path) for path in paths}


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino
