"""A file or directory that goes away under a running service is seen."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from streams.node import files_watch
from streams.node.files_watch import FilesWatch
from topics.errors import ServiceError


def replace(path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.write_bytes(b"")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: shutil.rmtree(data / "log"), "log was removed while"),
        (lambda data: shutil.move(data, data.with_name("away")), "log was removed while"),
        (lambda data: replace(data / "database"), "database was replaced while"),
    ],
)
async def test_what_goes_away_is_named(
    tmp_path: Path, change: Callable[[Path], object], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_watch, "LOOK_SECONDS", 0.01)
    data = tmp_path / "data"
    (data / "log").mkdir(parents=True)
    (data / "database").write_bytes(b"some")
    watching = asyncio.create_task(FilesWatch([data / "log", data / "database", data / "never"]).run())
    await asyncio.wait({watching}, timeout=0.2)
    (data / "log" / "new").touch()
    (data / "database").write_bytes(b"more")
    await asyncio.wait({watching}, timeout=0.2)
    assert not watching.done()
    change(data)
    with pytest.raises(ServiceError, match=said):
        await asyncio.wait_for(watching, 30)
