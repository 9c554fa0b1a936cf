"""Ways to damage a file."""

import os
from collections.abc import Callable
from pathlib import Path

Damage = Callable[[Path], None]


def emptied(file: Path) -> None:
    os.truncate(file, 0)


def cut(file: Path, size: int) -> None:
    """Remove the last bytes of a file."""
    os.truncate(file, file.stat().st_size - size)


def flipped(file: Path, byte: int | None = None) -> None:
    """Change, or repair, a bit of a byte of a file, or in its middle."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2 if byte is None else byte] ^= 1
    file.write_bytes(data)


def each(pattern: str, damage: Damage = Path.unlink) -> Damage:
    """Return a way to damage the files below a directory that match."""

    def damage_all(directory: Path) -> None:
        files = list(directory.rglob(pattern))
        assert files
        for file in files:
            damage(file)

    return damage_all
