"""The embedded log under kill -9, power loss and damage.

Run as a program it is the process to kill: it appends pairs of records in each iteration, and prints what was
acknowledged.
"""

import asyncio
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rocksdict import DBRecoveryMode, Options

from streams.embedded import layout
from streams.embedded import log_store as store
from streams.embedded.embedded_log import EmbeddedLog
from streams.embedded.errors import LogError
from streams.embedded.salvage import remains
from tests.conftest import ROOT
from tests.lengths import SEED, length
from topics.catalog import TopicPartition

LEFT, RIGHT = TopicPartition("t", 0), TopicPartition("t", 1)
ALL = 1 << 40


def value(number: int) -> bytes:
    return b"%d:" % number + bytes([number % 251]) * (number * 997 % 9000)


async def append_pairs(log: EmbeddedLog, count: int) -> int:
    """Append `count` pairs in one iteration of the loop, so in one group; return the number acknowledged."""
    start = log.end(LEFT)
    futures: list[asyncio.Future[object]] = []
    for number in range(start, start + count):
        futures += [log.append(*tp, b"k", value(number)) for tp in (LEFT, RIGHT)]  # type: ignore[misc]
    await asyncio.gather(*futures)
    return start + count


async def append_for_ever(directory: Path) -> None:
    log = EmbeddedLog.open(directory)
    log.declare("t", 2)
    while True:
        acked = await append_pairs(log, random.randint(1, 20))
        os.write(1, b"%d\n" % acked)


async def check(directory: Path, acked: int) -> int:
    """Open the log, and check that it has a prefix of whole groups with everything acknowledged; return its length."""
    log = EmbeddedLog.open(directory)
    try:
        end = log.end(LEFT) if "t" in log.topics() else 0
        assert end >= acked
        if end:
            assert log.end(RIGHT) == end, "half a group"
            for tp in (LEFT, RIGHT):
                records = log.read(tp, 0, ALL, ALL)
                assert [record.offset for record in records] == list(range(end))
                assert all(record.value == value(record.offset) for record in records)
        return end
    finally:
        await log.close()


def kill_at_random(directory: Path, seconds: float) -> int:
    """Kill a process while it appends; return the last acknowledged end."""
    command = [sys.executable, "-m", "tests.recovery.test_log_crash", str(directory)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.readlines()
    return int([line for line in lines if line.endswith(b"\n")][-1])


async def test_kill_9_loses_nothing_acknowledged(tmp_path: Path) -> None:
    print("seed", SEED)
    chance, end = random.Random(SEED), 0
    for _ in range(length("KILLS", 2)):
        acked = kill_at_random(tmp_path, chance.uniform(0.0, 0.4))
        assert acked > end
        end = await check(tmp_path, acked)


@pytest.fixture
def written(tmp_path: Path) -> Callable[[], Path]:
    """Return a factory of logs in the state after a crash: 30 groups, all in the write-ahead log."""
    source = tmp_path / "source"

    async def scenario() -> None:
        log = EmbeddedLog.open(source)
        log.declare("t", 2)
        for _ in range(30):
            await append_pairs(log, 2)
        shutil.copytree(source, tmp_path / "crashed")
        await log.close()

    asyncio.run(scenario())
    copies = iter(range(1000))

    def copy() -> Path:
        return Path(shutil.copytree(tmp_path / "crashed", tmp_path / f"copy{next(copies)}"))

    return copy


def wal(directory: Path) -> Path:
    return max((directory / "log").glob("*.log"), key=lambda file: file.stat().st_size)


def damage(directory: Path, start: int, stop: int) -> None:
    with wal(directory).open("r+b") as file:
        file.seek(start)
        old = file.read(stop - start)
        file.seek(start)
        file.write(bytes(len(old)) if any(old) else b"\x55" * len(old))


async def test_truncated_wal_recovers_whole_groups(written: Callable[[], Path]) -> None:
    directory = written()
    size = wal(directory).stat().st_size
    assert await check(directory, 60) == 60
    ends = []
    for cut in sorted(random.Random(1).sample(range(size), 12)):
        directory = written()
        os.truncate(wal(directory), cut)
        ends.append(await check(directory, 0))
    assert ends == sorted(ends)
    assert ends[0] < ends[-1] < 60


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
def test_wal_damage_is_reported_and_salvaged(written: Callable[[], Path], part: float) -> None:
    directory = written()
    start = int(wal(directory).stat().st_size * part)
    damage(directory, start, start + 100)
    for _ in range(2):
        with pytest.raises(LogError, match=r"is damaged .*Corruption.*earshot restore BACKUP"):
            EmbeddedLog.open(directory)
    with remains(directory / "log", directory / "scratch") as old:
        left, right = (list(old.records(tp)) for tp in (LEFT, RIGHT))
    assert 0 < len(left) < 60
    assert [record.offset for record in left] == list(range(len(left)))
    assert [record.value for record in left] == [value(number) for number in range(len(left))]
    assert [record.value for record in right] == [record.value for record in left], "half a group"


async def test_torn_last_group_is_dropped(written: Callable[[], Path]) -> None:
    """Power loss may leave pages of the last write in any order: its start missing, its end present."""
    for back in (50, 3000, 9000):
        directory = written()
        size = wal(directory).stat().st_size
        damage(directory, size - back, size - back + 40)
        assert await check(directory, 0) == 58


async def test_torn_last_group_is_dropped_despite_forged_marker(tmp_path: Path) -> None:
    """A client may put anything into a chunk."""
    log = EmbeddedLog.open(tmp_path / "data")
    log.declare("t", 2)
    log.declare("chunks", 1)
    await append_pairs(log, 20)
    await log.append("chunks", 0, None, layout.pack_marker(1 << 20, b""))
    await append_pairs(log, 2)
    shutil.copytree(tmp_path / "data", tmp_path / "crashed")
    await log.close()
    size = wal(tmp_path / "crashed").stat().st_size
    damaged = Path(shutil.copytree(tmp_path / "crashed", tmp_path / "damaged"))
    damage(damaged, size // 2, size // 2 + 100)
    with pytest.raises(LogError, match="is damaged"):
        EmbeddedLog.open(damaged)
    damage(tmp_path / "crashed", size - 50, size - 10)
    assert await check(tmp_path / "crashed", 20) == 20


async def test_every_ack_follows_wal_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[Options] = []
    plain = store.options

    def counting(recovery: DBRecoveryMode) -> Options:
        opts = plain(recovery)
        opts.enable_statistics()
        counted.append(opts)
        return opts

    monkeypatch.setattr(store, "options", counting)

    def syncs() -> int:
        found = re.search(r"rocksdb\.wal\.synced COUNT : (\d+)", counted[0].get_statistics() or "")
        return int(found[1]) if found else -1

    log = EmbeddedLog.open(tmp_path)
    log.declare("t", 2)
    for number in range(20):
        before = syncs()
        await log.append("t", 0, None, value(number))
        assert syncs() == before + 1
    await log.close()


if __name__ == "__main__":
    asyncio.run(append_for_ever(Path(sys.argv[1])))
