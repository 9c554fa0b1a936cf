"""The directory lock: one holder, named; free again when it is released."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from streams.embedded.errors import LogLocked
from streams.embedded.lock import DirectoryLock


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path / "new" / "data")
    with pytest.raises(LogLocked, match=f"data is in use by process {os.getpid()}"):
        DirectoryLock(tmp_path / "new" / "data")
    lock.release()
    lock.release()
    DirectoryLock(tmp_path / "new" / "data").release()
