"""Stopped partitions in the database: each once, with the operator's last decision."""

import msgspec
import pytest

from infra.db.database import Database
from infra.db.stops import SqlStops
from topics.errors import NotFound
from topics.ports.stops import Decision, Stop

STOP = Stop(3, "earshot.session.command.v1", 1 << 40, "20 of 21 records cannot be read", 1_700_000_000_000)


async def test_stop_is_noted_until_partition_serves(database: Database) -> None:
    stops = SqlStops(database)
    assert await stops.note(STOP) is None
    assert await stops.note(msgspec.structs.replace(STOP, at=STOP.at + 1)) is None
    assert await stops.all() == [STOP]
    with pytest.raises(NotFound, match="partition 4 has not stopped"):
        await stops.decide(4, Decision.SKIP)
    await stops.clear(3)
    await stops.clear(3)
    assert await stops.all() == []


async def test_decision_to_resume_counts_once_and_to_skip_until_another_stop(database: Database) -> None:
    stops = SqlStops(database)
    await stops.note(STOP)
    await stops.decide(3, Decision.RESUME)
    assert [await stops.note(STOP) for _ in range(2)] == [Decision.RESUME, None]
    await stops.decide(3, Decision.SKIP)
    assert [await stops.note(STOP) for _ in range(2)] == [Decision.SKIP, Decision.SKIP]
    later = msgspec.structs.replace(STOP, offset=STOP.offset + 1)
    assert await stops.note(later) is None
    assert await stops.all() == [later]
