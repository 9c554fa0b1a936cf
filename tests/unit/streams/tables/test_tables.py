"""Tables that are made anew, and what is kept of those before."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from streams.log import LogWriter
from streams.tables.database import Databases
from streams.tables.rows import TableUnfit
from streams.tables.tables import Tables


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(Databases(tmp_path), mock.Mock(spec=LogWriter), lambda: 1_700_000_000_000)


def test_damaged_tables_are_kept(tables: Tables, tmp_path: Path) -> None:
    for number in range(5):
        tables.open(2).close()
        assert len(tables.aside()) == number
        (tmp_path / "partitions" / "2.db" / "CURRENT").unlink()
    assert all((path / "LOCK").exists() for path in tables.aside())
    assert tables.rebuilt[-1].sentence().endswith(f"CURRENT is missing); the old one is {tables.aside()[-1]}")


def test_what_the_log_does_not_have_may_be_lost(tables: Tables) -> None:
    tables.mend(tables.open(2), TableUnfit("it is of another log")).close()
    assert "what the log does not have may be lost; the old one is " in tables.rebuilt[-1].sentence()
