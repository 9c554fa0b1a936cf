"""The placement of partitions on lanes, and their move to another number of lanes."""

import asyncio
import random
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import pytest

from infra.errors import WrongSetting
from infra.service import data_directory, lanes, moves
from infra.service.lanes import Placement
from infra.service.options import node_options
from infra.settings import Lane, Settings
from streams import cores
from streams.embedded.embedded_log import EmbeddedLog
from streams.embedded.errors import LogDamaged
from streams.embedded.marks import FILE, Marks
from streams.tables.database import Databases
from tests.lengths import SEED, length
from topics.catalog import TopicPartition
from topics.errors import ServiceError

TOPICS = ("commands", "changelog")
PARTITIONS = 5
NAME = b"the log's name.."
MOVES = length("MOVES", 12)


def frozen(*shares: set[int]) -> tuple[frozenset[int], ...]:
    return tuple(map(frozenset, shares))


@pytest.mark.parametrize(
    ("before", "count", "after"),
    [
        (frozen({0, 1, 2, 3}), 2, frozen({0, 1}, {2, 3})),
        (frozen({0, 1}, {2, 3}), 3, frozen({0, 1}, {2}, {3})),
        (frozen({0, 1}, {2}, {3}), 1, frozen({0, 1, 2, 3})),
        (frozen({0}, {1, 2, 3, 4}), 2, frozen({0, 4}, {1, 2, 3})),
        (frozen({0, 1}, {2, 3}), 2, frozen({0, 1}, {2, 3})),
    ],
)
def test_as_few_partitions_as_possible_move(
    before: tuple[frozenset[int], ...], count: int, after: tuple[frozenset[int], ...]
) -> None:
    assert lanes.balanced(before, count) == after


def settings(data: Path, count: int | None = None) -> Settings:
    return Settings(data=data, lanes=count, partitions=PARTITIONS)


def test_what_is_for_the_machine_is_divided(tmp_path: Path) -> None:
    machine = settings(tmp_path, 2)
    one, two = machine.of_lane(Lane()), machine.of_lane(Lane(1, 2, 1))
    names = {"workers", "queue_bytes", "body_bytes", "upload_spool_bytes"} | {
        f"{engine}_concurrency" for engine in ("speech", "caption", "translation", "speaker")
    }
    given = machine.model_dump()
    assert one.model_dump() == given
    assert two.model_dump() == given | {name: max(1, given[name] // 2) for name in names}
    whole, half = (node_options(lane, "", None) for lane in (one, two))
    assert (half.audio_cache_bytes, half.picture_bytes) == (whole.audio_cache_bytes // 2, whole.picture_bytes // 2)


class Stored(NamedTuple):
    timestamp: int
    offset: int
    key: bytes | None
    value: bytes | None


def contents(machine: Settings) -> dict[TopicPartition, list[Stored]]:
    """Return all records, each partition from the lane that has it."""
    return asyncio.run(_contents(machine))


async def _contents(machine: Settings) -> dict[TopicPartition, list[Stored]]:
    found = {}
    for lane, numbers in zip(lanes.lanes_of(machine), lanes.stored(machine).partitions, strict=True):
        log = EmbeddedLog.open(data_directory.log(lane).parent, name=NAME)
        for tp in (TopicPartition(topic, number) for topic in log.topics() for number in range(PARTITIONS)):
            records = [Stored(one.timestamp, one.offset, one.key, one.value) for one in log.read(tp, 0, 9999, 1 << 30)]
            assert tp.partition in numbers or not records
            if tp.partition in numbers:
                found[tp] = records
                # The next record follows, whichever lane has the partition.
                acknowledged = await log.append(*tp, b"key", b"one more")
                assert acknowledged.offset == (records[-1].offset + 1 if records else 0)
        await log.close()
    return found


@pytest.fixture
def filled(tmp_path: Path) -> Settings:
    """A data directory with records and tables that never had several lanes."""

    async def fill() -> None:
        log = EmbeddedLog.open(tmp_path / "log")
        log.store.write_patiently({b"i": NAME})
        for topic in TOPICS:
            log.declare(topic, PARTITIONS)
            for number in range(PARTITIONS):
                for value in (b"small", b"large" * 2000, None)[: number + 1]:
                    await log.append(topic, number, b"%d" % number, value)
        await log.close()

    machine = settings(tmp_path)
    asyncio.run(fill())
    for number in range(PARTITIONS):
        table = Databases(data_directory.tables(machine)).open(number)
        table.write_rows({b"row": b"%d" % number})
        table.close()
    return machine


def tables(machine: Settings) -> dict[int, bytes | None]:
    found = {}
    for lane, numbers in zip(lanes.lanes_of(machine), lanes.stored(machine).partitions, strict=True):
        for number in numbers:
            table = Databases(data_directory.tables(lane)).open(number)
            found[number] = table.get(b"row")
            table.close()
    return found


def test_moved_partitions_keep_records_offsets_and_tables(filled: Settings) -> None:
    before = contents(filled)
    moved = before
    for count in (3, 5, 2, 1):
        machine = settings(filled.data, count)
        assert len(moves.settle(machine, NAME).partitions) == count
        known, moved = moved, contents(machine)
        # `contents` appends a record to each partition.
        assert {tp: records[: len(known[tp])] for tp, records in moved.items()} == known
        assert {tp: len(records) for tp, records in moved.items()} == {tp: len(one) + 1 for tp, one in known.items()}
        assert tables(machine) == {number: b"%d" % number for number in range(PARTITIONS)}
    assert sorted(path.name for path in filled.data.iterdir()) == ["lanes-4", "log"]
    assert sorted(path.name for path in (filled.data / "log").iterdir()) == ["lanes", "lanes-4", "lock"]


class Killed(BaseException):
    pass


class Steps:
    """Counts what a move does to the file system, as far as Python does it, and interrupts it at a step."""

    NAMES: Final = frozenset({"open", "os.mkdir", "os.rename", "os.link", "os.remove", "os.rmdir", "shutil.copyfile"})

    def __init__(self) -> None:
        self.left = 0
        sys.addaudithook(self._count)

    def _count(self, event: str, arguments: object) -> None:
        if self.left and event in self.NAMES:
            self.left -= 1
            if not self.left:
                raise Killed


@pytest.mark.timeout(120 + MOVES)
def test_move_that_is_interrupted_anywhere_leaves_one_truth(filled: Settings) -> None:
    chance = random.Random(seed := SEED)
    steps, known = Steps(), contents(filled)
    for number in range(MOVES):
        interrupted, machine = (settings(filled.data, chance.randint(1, 4)) for _ in range(2))
        # Most moves have fewer steps.
        steps.left = chance.randint(1, 250)
        with suppress(Killed):
            moves.settle(interrupted, NAME)
        steps.left = 0
        placement = moves.settle(machine, NAME)
        assert len(placement.partitions) == machine.lane_count
        before, known = known, contents(machine)
        assert {tp: records[: len(before[tp])] for tp, records in known.items()} == before, (seed, number)
        assert tables(machine) == {number: b"%d" % number for number in range(PARTITIONS)}, (seed, number)
        there = {one.name for root in (filled.data, filled.data / "log") for one in root.glob("lanes-*")}
        assert there == ({f"lanes-{placement.generation}"} if placement.generation else set()), (seed, number)


@pytest.mark.parametrize("lost", ["the newest records", "everything"])
def test_log_that_has_lost_something_is_not_moved(filled: Settings, lost: str) -> None:
    """The marks among the tables say how far it had come."""
    marks = Marks(data_directory.tables(filled) / FILE)
    marks.group = 10**6
    marks.keep()
    marks.close()
    if lost == "everything":
        shutil.rmtree(data_directory.log(filled))
    with pytest.raises(LogDamaged, match="is missing, although" if lost == "everything" else "there were 1000000"):
        moves.settle(settings(filled.data, 2), NAME)
    assert len(lanes.stored(filled).partitions) == 1


def test_first_start_stores_how_many_partitions_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later ones have as many, on a machine with other cores, and move them to the lanes that it has."""
    (tmp_path / "log").mkdir()
    first = moves.settle(Settings(data=tmp_path), NAME)
    assert first == lanes.stored(Settings(data=tmp_path)) == Placement(0, (frozenset(range(4)),))
    monkeypatch.setattr(cores, "usable", lambda: 12)
    moved = moves.settle(Settings(data=tmp_path), NAME)
    assert moved == Placement(1, frozen({0, 1}, {2}, {3}))
    monkeypatch.setattr(cores, "usable", lambda: 2)
    assert moves.settle(Settings(data=tmp_path), NAME) == Placement(2, (frozenset(range(4)),))


def test_move_needs_room_on_the_disk(filled: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9, 1000))
    with pytest.raises(ServiceError, match=r"moving 1 lanes to 2 needs \d+ MiB beside .*EARSHOT_LANES=1"):
        moves.settle(settings(filled.data, 2), NAME)
    assert lanes.stored(filled) == Placement(0, (frozenset(range(PARTITIONS)),))


def test_wrong_numbers_and_damaged_placements_are_named(filled: Settings) -> None:
    with pytest.raises(WrongSetting, match="EARSHOT_LANES: at most 5"):
        moves.settle(settings(filled.data, 6), NAME)
    (filled.data / "log" / "lanes").write_bytes(b'{"generation": 1, "partitions": [[0, 1], [2]]}')
    with pytest.raises(ServiceError, match="places 3 partitions, 5 are asked for"):
        lanes.stored(filled)
    (filled.data / "log" / "lanes").write_bytes(b"\0")
    with pytest.raises(ServiceError, match="cannot be read"):
        lanes.stored(filled)


def test_log_that_only_the_database_remembers_is_missed(filled: Settings) -> None:
    for lost in (data_directory.log(filled), data_directory.tables(filled)):
        shutil.rmtree(lost)
    with pytest.raises(LogDamaged, match="is missing, although"):
        moves.settle(settings(filled.data, 2), NAME)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_lost_placement_is_refused_and_nothing_removed(filled: Settings, count: int) -> None:
    moves.settle(settings(filled.data, 2), NAME)
    (filled.data / "log" / "lanes").unlink()
    before = sorted(filled.data.rglob("*"))
    with pytest.raises(ServiceError, match="lanes is missing, although there are lanes"):
        moves.settle(settings(filled.data, count), NAME)
    assert sorted(filled.data.rglob("*")) == before


def test_placement_that_names_missing_lanes_is_refused_and_nothing_removed(filled: Settings) -> None:
    """As that of an older backup, beside the lanes of now."""
    moves.settle(settings(filled.data, 2), NAME)
    lanes.store(filled, msgspec.structs.replace(lanes.stored(filled), generation=7))
    before = sorted(filled.data.rglob("*"))
    with pytest.raises(ServiceError, match="names the lanes in lanes-7, which is missing"):
        moves.settle(settings(filled.data, 2), NAME)
    assert sorted(filled.data.rglob("*")) == before


def test_lanes_of_a_new_directory_share_the_name_of_the_log(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    machine = settings(tmp_path, 2)
    lanes.store(machine, lanes.stored(machine))
    moves.settle(machine, NAME)
    assert contents(machine) == {}
    assert all(lane.workers >= 1 and lane.queue_bytes < machine.queue_bytes for lane in lanes.lanes_of(machine))


@pytest.mark.parametrize("count", [1, 2])
def test_kafka_start_removes_what_lanes_of_before_had(tmp_path: Path, count: int) -> None:
    machine = Settings(data=tmp_path, lanes=count, broker="kafka://127.0.0.1:1", partitions=PARTITIONS)
    everything = [tmp_path, *(tmp_path / "lanes-1" / str(number) for number in range(4))]
    for own in everything:
        (own / "tables-kafka" / "0").mkdir(parents=True)
        (own / "tables-kafka" / "node-id").touch()
        (own / "uploads").mkdir()
    (tmp_path / "tables-kafka" / "lock").touch()
    moves.settle(machine, None)
    left = {own for own in everything if (own / "tables-kafka" / "0").exists()}
    assert left == {tmp_path} if count == 1 else {tmp_path / "lanes-1" / "0", tmp_path / "lanes-1" / "1"}
    assert left == {own for own in everything if (own / "uploads").exists()}
    assert (tmp_path / "tables-kafka" / "lock").exists()
    assert data_directory.contents(machine)[-1] == tmp_path / "lanes-1" or count == 1
