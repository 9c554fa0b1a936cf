"""What the probes say of the database and of the disk, beside what the node says."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from infra.db.database import Database
from infra.service.health import ServiceHealth
from streams.node.node import Node
from topics.errors import DirectoryDown


def health_of(database: Database, directory: Path, kept_free: int = 0) -> ServiceHealth:
    node = mock.Mock(spec=Node)
    node.notes.side_effect = lambda: ["a table was rebuilt"]
    node.gauges.return_value = [("earshot_windows", "", 3)]
    node.ready.return_value = node.alive.return_value = None
    return ServiceHealth(node, database, directory, kept_free)


def gauge(health: ServiceHealth, name: str) -> float:
    return {name: value for name, _, value in health.gauges()}[name]


async def test_a_database_that_fails_is_noted_until_it_works_again(tmp_path: Path) -> None:
    database = Database(f"sqlite+aiosqlite:///{tmp_path / 'earshot.db'}")
    health = health_of(database, tmp_path)
    await database.migrate()
    assert (health.notes(), gauge(health, "earshot_database_failing")) == (["a table was rebuilt"], 0)
    (tmp_path / "earshot.db").rename(tmp_path / "away")
    await database.close()
    (tmp_path / "earshot.db").mkdir()
    with pytest.raises(DirectoryDown):
        await database.exists()
    assert (health.ready(), health.alive()) == (None, None)
    assert health.notes() == ["a table was rebuilt", "the database fails"]
    assert (gauge(health, "earshot_database_failing"), gauge(health, "earshot_windows")) == (1, 3)
    (tmp_path / "earshot.db").rmdir()
    (tmp_path / "away").rename(tmp_path / "earshot.db")
    assert await database.exists()
    assert health.notes() == ["a table was rebuilt"]
    await database.close()


async def test_a_disk_without_room_for_uploads_is_noted(tmp_path: Path) -> None:
    database = Database(f"sqlite+aiosqlite:///{tmp_path / 'earshot.db'}")
    assert gauge(health_of(database, tmp_path), "earshot_upload_room_bytes") > 0
    full = health_of(database, tmp_path, kept_free=1 << 62)
    assert full.notes()[1:] == ["uploads are refused: the disk is nearly full"]
    assert gauge(full, "earshot_upload_room_bytes") == 0
