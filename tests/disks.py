"""Small file systems that tests fill."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Disk:
    """A small file system that is filled by a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def fill(self) -> None:
        """Fill the disk; call again to fill space that was freed meanwhile."""
        block = bytes(1 << 20)
        with self._ballast.open("ab", buffering=0) as file:
            while block:
                try:
                    file.write(block)
                except OSError:
                    block = block[: len(block) // 2]

    def resize(self, megabytes: int) -> None:
        """Change its size; only what it holds takes memory."""
        subprocess.run(["mount", "-o", f"remount,size={megabytes}m", self.path], check=True)

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)


@contextmanager
def mounted(path: Path, megabytes: int) -> Iterator[Disk | None]:
    """Yield a new file system in memory at a path; None if this user has no right to mount one."""
    path.mkdir(parents=True)
    options = ["-t", "tmpfs", "-o", f"size={megabytes}m", "none"]
    if subprocess.run(["mount", *options, path], check=False, capture_output=True).returncode:
        yield None
        return
    try:
        yield Disk(path)
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)
