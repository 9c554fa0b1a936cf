"""Puts files and directories on disk, so that they are there after a power cut."""

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Sync a file to disk, or a directory without its contents."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def sync_all(path: Path) -> None:
    """Sync a file, or a directory with everything in it, to disk."""
    for one in (path, *path.rglob("*")) if path.is_dir() else (path,):
        sync(one)


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file atomically, so that it is whole whenever the machine stops."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_bytes(data)
    sync(fresh)
    fresh.replace(path)
