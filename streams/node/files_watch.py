"""Detects that a file or directory of the service was removed or replaced: later writes to it are lost."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from topics.errors import ServiceError

LOOK_SECONDS: Final = 1.0


class FilesWatch:
    """Watches files and directories that must not be removed or replaced after the first look. Loop only."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths

    async def run(self) -> None:
        """Check every second; raise ServiceError once a path was removed or replaced."""
        first = await asyncio.to_thread(self._look)
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now = await asyncio.to_thread(self._look)
            for path, was in first.items():
                if was is not None and now[path] != was:
                    state = "removed" if now[path] is None else "replaced"
                    raise ServiceError(f"{path} was {state} while the service runs: what is written to it is lost")

    def _look(self) -> Mapping[Path, tuple[int, int] | None]:
        return {path: _identity(path) for path in self._paths}


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino
