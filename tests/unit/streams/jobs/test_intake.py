"""The intake agent of jobs: rows, verdicts and what is announced. The rules are tested by themselves."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

import pytest
import xxhash

from streams.jobs.source import PartSource
from tests.unit.streams.jobs.world import JOB, KEEP_MS, JobWorld, accepted
from topics import record_codec
from topics.errors import AudioError
from topics.folding import Verdict
from topics.jobs.records import JobCommand, Part, Removed
from topics.rows import AudioRow


async def told(*commands: JobCommand) -> tuple[JobWorld, list[Verdict]]:
    world = JobWorld()
    futures = [world.verdicts.expect(command.command) for command in commands]
    for command in commands:
        world.command(command)
    world.fold_all()
    return world, [future.result() for future in futures]


def part(number: int, data: bytes) -> Part:
    return Part(f"p{number}", "a", number, data)


async def test_a_part_row_refers_to_the_log() -> None:
    world, verdicts = await told(part(0, b"one"), part(1, b"two"))
    assert [verdict.status for verdict in verdicts] == [200, 200]
    assert world.store.audio(JOB, 0, 2) == [
        AudioRow(offset, 3, xxhash.xxh3_128_digest(data)) for offset, data in enumerate([b"one", b"two"])
    ]
    assert world.store.accepted(JOB) is None


async def test_an_acceptance_is_answered_kept_and_told() -> None:
    world, verdicts = await told(part(0, b"one"), accepted("a", 1))
    assert verdicts[-1].status == 200
    assert world.store.accepted(JOB) == accepted("a", 1)
    assert KEEP_MS + world.now in {due for due, _ in world.store.due(2**60, 9)}
    assert [list(changes.work) for changes in world.announced] == [[], [JOB]]


async def test_readers_and_the_runner_hear_of_a_removal() -> None:
    world, verdicts = await told(part(0, b"one"), accepted("a", 1), Removed("r"), Removed("again"))
    assert [verdict.status for verdict in verdicts] == [200, 200, 204, 404]
    assert (list(world.announced[2].gone), list(world.announced[2].changed)) == ([JOB], [JOB])


class Log:
    """Records by offset."""

    def __init__(self, records: dict[int, bytes]) -> None:
        self.records = records

    async def read(self, partition: int, offsets: Sequence[int]) -> AsyncGenerator[bytes | None, None]:
        for offset in offsets:
            yield self.records.get(offset)


async def test_parts_are_read_back_in_order_and_damage_is_named() -> None:
    world, _ = await told(part(0, b"one"), part(1, b"two"))
    rows = world.store.audio(JOB, 0, 2)
    values = {record.offset: record.value or b"" for record in world.commands}

    async def read(records: dict[int, bytes]) -> list[bytes]:
        return [data async for data in PartSource(Log(records)).read(0, rows)]

    assert await read(values) == [b"one", b"two"]
    with pytest.raises(AudioError, match="damaged"):
        await read({**values, 1: record_codec.encode(part(1, b"other"))})
    with pytest.raises(AudioError, match="damaged"):
        await read({**values, 1: record_codec.encode(Removed("r"))})
    with pytest.raises(AudioError, match="retention"):
        await read({0: values[0]})
