"""Tables that are made anew, and what is kept of those before."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from streams.log import LogWriter
from streams.tables.database import Databases
from streams.tables.rows import TableUnfit
from streams.tables.tables import KEPT, Tables


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(Databases(tmp_path), mock.Mock(spec=LogWriter), lambda: 1_700_000_000_000)


def test_damaged_tables_do_not_fill_the_disk(tables: Tables, tmp_path: Path) -> None:
    """The first ones are kept: they are nearest to the cause."""
    tables.open(12).close()
    (tmp_path / "partitions" / "12.db").rename(tmp_path / "partitions" / "12.damaged-1")  # Another partition's.
    for number in range(KEPT + 2):
        tables.open(2).close()
        assert len(tables.aside()) == 1 + min(number, KEPT)
        (tmp_path / "partitions" / "2.db" / "CURRENT").unlink()
    tables.open(2).close()
    assert [bool(rebuilt.path) for rebuilt in tables.rebuilt] == [True] * KEPT + [False] * 2
    assert tables.rebuilt[-1].sentence().endswith("CURRENT is missing); the old one was not kept")
    assert all((path / "LOCK").exists() for path in tables.aside())


def test_what_may_be_all_that_is_left_is_always_kept(tables: Tables) -> None:
    for _ in range(KEPT + 1):
        tables.mend(tables.open(2), TableUnfit("it is of another log")).close()
    assert len(tables.aside()) == KEPT + 1
    assert "what the log does not have may be lost; the old one is " in tables.rebuilt[-1].sentence()
