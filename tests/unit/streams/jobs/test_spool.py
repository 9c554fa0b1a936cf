"""The files that the runs of a job share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from streams.jobs.spool import Spool
from topics.errors import AudioError, Unavailable

JOB = "J" * 24


class Log:
    """Parts that come once the gate is open; then what it is told to raise."""

    def __init__(self, *parts: bytes, fault: Exception | None = None) -> None:
        self.parts = parts
        self.fault = fault
        self.reads = self.open = 0
        self.gate = asyncio.Event()

    async def read(self) -> AsyncGenerator[bytes, None]:
        self.reads += 1
        self.open += 1
        try:
            await self.gate.wait()
            for part in self.parts:
                yield part
            if self.fault is not None:
                raise self.fault
        finally:
            self.open -= 1


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    spool = Spool(tmp_path / "spool")
    spool.clear()
    return spool


def files(spool: Spool) -> list[Path]:
    return list(spool.directory.iterdir())


async def test_one_download_for_all_and_the_last_one_removes_it(spool: Spool) -> None:
    log = Log(b"one", b"two")
    takes = [asyncio.create_task(spool.take(JOB, run, log.read)) for run in "abc"]
    await asyncio.sleep(0)
    log.gate.set()
    paths = set(await asyncio.gather(*takes))
    assert (log.reads, len(paths)) == (1, 1)
    assert paths.pop().read_bytes() == b"onetwo"
    for run in "aab":
        spool.give_back(JOB, run)
        assert len(files(spool)) == 1
    spool.give_back(JOB, "c")
    assert files(spool) == []
    spool.give_back(JOB, "c")


async def test_one_who_waits_no_longer_stops_nobody(spool: Spool) -> None:
    log = Log(b"audio")
    first, second = (asyncio.create_task(spool.take(JOB, run, log.read)) for run in "ab")
    await asyncio.sleep(0)
    first.cancel()
    spool.give_back(JOB, "a")
    log.gate.set()
    assert (await second).read_bytes() == b"audio"


async def test_nobody_waits_any_longer(spool: Spool) -> None:
    log = Log(b"audio")
    take = asyncio.create_task(spool.take(JOB, "a", log.read))
    await asyncio.sleep(0)
    take.cancel()
    spool.give_back(JOB, "a")
    log.gate.set()
    await asyncio.sleep(0.01)
    assert files(spool) == []
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize("fault", [AudioError("gone"), Unavailable("away")])
async def test_what_the_log_raises_reaches_all_and_the_next_one_tries_again(spool: Spool, fault: Exception) -> None:
    log = Log(b"half", fault=fault)
    log.gate.set()
    found = await asyncio.gather(*(spool.take(JOB, run, log.read) for run in "ab"), return_exceptions=True)
    assert found == [fault, fault]
    for run in "ab":
        spool.give_back(JOB, run)
    assert files(spool) == []
    log.fault = None
    assert (await spool.take(JOB, "c", log.read)).read_bytes() == b"half"


async def test_a_disk_that_takes_nothing(spool: Spool) -> None:
    log = Log(b"audio")
    taking = asyncio.create_task(spool.take(JOB, "a", log.read))
    await asyncio.sleep(0)
    files(spool)[0].unlink()
    log.gate.set()
    with pytest.raises(Unavailable, match="spool cannot be written"):
        await taking
    assert log.open == 0, "a reader holds a lock for as long"
    spool.give_back(JOB, "a")
    spool.directory.rmdir()
    with pytest.raises(Unavailable, match="spool cannot be written"):
        await spool.take(JOB, "a", log.read)


async def test_a_job_that_comes_again_has_its_own_audio(spool: Spool) -> None:
    old, new = Log(b"old"), Log(b"new")
    old.gate.set()
    new.gate.set()
    await spool.take(JOB, "a", old.read)
    spool.drop(JOB)
    path = await spool.take(JOB, "b", new.read)
    spool.give_back(JOB, "a")
    assert path.read_bytes() == b"new"


def test_what_a_process_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / "left.audio").write_bytes(b"audio")
    (tmp_path / "other").write_bytes(b"not ours")
    Spool(tmp_path).clear()
    assert [path.name for path in tmp_path.iterdir()] == ["other"]
