"""Group commit: how groups are cut, and the effects of a full disk, a busy database and a permanent failure."""

import asyncio
import os
import resource
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from streams.disk import DatabaseFailed, DiskDatabase, DiskFull
from streams.embedded import group_writer as writer
from streams.embedded.embedded_log import EmbeddedLog
from streams.embedded.errors import LogDamaged, LogError
from streams.embedded.groups import GROUP_ITEMS, SHARED_BYTES
from streams.embedded.log_store import Stalled
from tests.garbage import uncollected
from tests.unit.streams.appending import append_soon
from tests.unit.streams.embedded.conftest import FailingRocks, Reopen
from tests.waiting import until
from topics.catalog import TopicPartition
from topics.errors import Unavailable

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ALL = 1 << 30


class Trouble:
    """Makes a store's method raise while `on`, or `times` times; a sync fails after a successful write."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, log: EmbeddedLog, method: str, error: Exception, times: int = 1 << 30
    ) -> None:
        self.on = True
        self.calls = 0
        inner: Callable[..., Any] = getattr(log.store, method)

        def troubled(*args: Any) -> Any:
            self.calls += 1
            if self.on and self.calls <= times:
                raise error
            return inner(*args)

        monkeypatch.setattr(log.store, method, troubled)


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "SPACE_RETRY", 0.001)
    monkeypatch.setattr(writer, "STALL_RETRY", 0.001)


@pytest.fixture
def synced(reopen: Reopen, loop: asyncio.Runner) -> EmbeddedLog:
    return loop.run(reopen(sync=True))


def groups(log: EmbeddedLog) -> int:
    return log._writer._number


def values(log: EmbeddedLog, tp: TopicPartition) -> list[bytes | None]:
    return [record.value for record in log.read(tp, 0, ALL, ALL)]


async def test_full_disk_rejects_queued_appends(synced: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    Trouble(monkeypatch, synced, "write", DiskFull("full"))
    futures = [synced.append("t", 0, None, bytes(600_000)) for _ in range(6)]
    results = await asyncio.gather(*futures, return_exceptions=True)
    assert all(isinstance(result, DiskFull) for result in results)
    assert synced.queued_bytes == 0


async def test_stalled_database_only_delays_appends(synced: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    trouble = Trouble(monkeypatch, synced, "write", Stalled("busy"), times=3)
    futures = [synced.append("t", 0, None, b"%d" % n) for n in range(3)]
    assert [ack.offset for ack in await asyncio.gather(*futures)] == [0, 1, 2]
    assert trouble.calls == 4
    assert values(synced, T0) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("method", ["write", "sync"])
async def test_unknown_write_failure_is_permanent(
    synced: EmbeddedLog, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    Trouble(monkeypatch, synced, method, LogError("the disk is gone"))
    futures = [synced.append("t", 0, None, bytes(600_000), bounded=False) for _ in range(6)]
    results = await asyncio.gather(*futures, synced.flush(), return_exceptions=True)
    assert {str(result) for result in results} == {"the disk is gone"}
    assert str(synced.failure) == "the disk is gone"
    for refused in (lambda: synced.append("t", 0, None, b""), lambda: append_soon(synced, "t", 0, None, b"")):
        with pytest.raises(LogError, match="the disk is gone"):
            refused()
    assert values(synced, T0) == []


@pytest.mark.parametrize("call", ["write", "flush_wal"])
@pytest.mark.parametrize(
    ("said", "error", "match"),
    [
        (
            "IO error: No space left on device: While appending: /data/log/9.log",
            DiskFull,
            "the disk under the log is full",
        ),
        (
            "IO error: While appending: /data/log/9.log: Input/output error",
            DatabaseFailed,
            r"9\.log: Input/output error",
        ),
    ],
    ids=["full", "failing"],
)
async def test_full_or_failing_disk_rejects_writes_until_recovery(
    synced: EmbeddedLog,
    reopen: Reopen,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    said: str,
    error: type[Unavailable],
    match: str,
) -> None:
    await synced.append("t", 0, None, b"before")
    database: Any = synced.store._db
    failing = FailingRocks(database.rocks, call, said)
    database.rocks = failing
    with monkeypatch.context() as patch:
        revive = mock.Mock(side_effect=Exception("Too many open files (os error 24)"))
        patch.setattr(DiskDatabase, "revive", revive)
        chunk = synced.append("t", 0, None, b"refused")
        refused = synced.append("t", 1, None, b"refused"), synced.append("t", 1, None, b"refused too")
        result = synced.append("t", 0, None, b"result", bounded=False)
        append_soon(synced, "t", 0, None, b"row")
        with pytest.raises(error, match=match) as caught:
            await chunk
        # A group whose sync failed may be complete in the write-ahead log, and return after a kill.
        assert ("may still" in str(caught.value)) == caught.value.uncertain == (call == "flush_wal")
        assert {type(one) for one in await asyncio.gather(*refused, return_exceptions=True)} == {error}
        await until(lambda: "Too many open files" in (synced.refusal or ""))
        with pytest.raises(DatabaseFailed):
            synced.append("t", 0, None, b"refused")
        with pytest.raises(Unavailable):
            await synced.flush()
        assert values(synced, T0) == [b"before"]
        assert not result.done()
    assert (await result).offset == 1
    await synced.flush()
    assert (synced.refusal, synced.failure) == (None, None)
    assert database.rocks is not failing  # It was reopened.
    again = await reopen()
    assert values(again, T0) == [b"before", b"result", b"row"]
    assert values(again, T1) == []
    await again.append("t", 1, None, b"after")
    assert values(again, T1) == [b"after"]


async def test_log_recovers_from_too_many_open_files(synced: EmbeddedLog) -> None:
    """RocksDB accepts no writes after the first such fault, until it is reopened."""
    await synced.append("t", 0, None, b"before")
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    with uncollected():  # Garbage of earlier tests may hold files, and would make room for others.
        os.close(next_one := os.dup(0))
        resource.setrlimit(resource.RLIMIT_NOFILE, (next_one, allowed[1]))
        try:
            with pytest.raises(Exception, match="Too many open files"):
                synced.store._db.rocks.flush()
            with pytest.raises(Unavailable):
                await synced.append("t", 0, None, b"refused")
            await until(lambda: synced.refusal is not None)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, allowed)
    await until(lambda: synced.refusal is None)
    await synced.append("t", 0, None, b"after")
    assert values(synced, T0) == [b"before", b"after"]
    assert synced.failure is None


async def test_damage_is_a_permanent_failure(synced: EmbeddedLog) -> None:
    database: Any = synced.store._db
    database.rocks = FailingRocks(database.rocks, "write", "IO error: No such file or directory: /data/log/9.log")
    with pytest.raises(LogDamaged, match=rf"^the log in {synced.store._path} is damaged \(IO error"):
        await synced.append("t", 0, None, b"refused")
    assert isinstance(synced.failure, LogDamaged)


async def test_flush_waits_for_group_in_flight(synced: EmbeddedLog) -> None:
    append_soon(synced, "t", 0, None, b"v")
    await asyncio.sleep(0)
    await synced.flush()
    assert synced.end(T0) == 1
    await synced.flush()
    assert groups(synced) == 1


async def test_large_queue_is_split_into_groups(synced: EmbeddedLog) -> None:
    futures = [synced.append("t", 0, None, bytes(400_000)) for _ in range(9)]
    futures[4].cancel()
    acks = await asyncio.gather(*futures, return_exceptions=True)
    assert [ack.offset for ack in acks if not isinstance(ack, BaseException)] == [0, 1, 2, 3, 5, 6, 7, 8]
    assert groups(synced) == 3
    assert synced.end(T0) == 9
    await asyncio.gather(*(synced.append("t", 0, None, b"") for _ in range(GROUP_ITEMS + 1)))
    assert groups(synced) == 3 + 2


async def test_appends_take_turns_by_project_behind_those_of_service(synced: EmbeddedLog) -> None:
    first = synced.append("t", 0, None, b"", project="loud")
    loud = [synced.append("t", 0, None, bytes(600_000), project="loud") for _ in range(6)]
    quiet = [synced.append("t", 0, None, b"%d" % n, project="quiet") for n in range(2)]
    own = synced.append("t", 0, None, b"own", bounded=False)
    offsets = [ack.offset for ack in await asyncio.gather(own, first, *loud, *quiet)]
    assert offsets == [0, 1, 3, 5, 6, 7, 8, 9, 2, 4]


async def test_groups_are_small_while_projects_share_the_log(synced: EmbeddedLog) -> None:
    """Otherwise the command of one waits for a megabyte of the other, in its own group and the one before."""
    loud = [synced.append("t", 0, None, bytes(SHARED_BYTES // 4), project="loud") for _ in range(20)]
    await asyncio.gather(*loud)
    assert groups(synced) == 1
    for count, most in ((20, 6), (1000, 40)):  # Large commands, and small ones, whose folding takes the time.
        quiet = synced.append("t", 0, None, b"", project="quiet")
        size = SHARED_BYTES // 4 if count == 20 else 1
        loud = [synced.append("t", 0, None, bytes(size), project="loud") for _ in range(count)]
        before = synced.end(T0)
        await quiet
        assert synced.end(T0) - before <= 2 * most
        await asyncio.gather(*loud)


async def test_flush_waits_for_all_projects(synced: EmbeddedLog) -> None:
    before = [synced.append("t", 0, None, bytes(600_000), project=project) for project in ("a", "a", "a", "b")]
    flush = asyncio.create_task(synced.flush())
    await asyncio.sleep(0)
    after = [synced.append("t", 0, None, bytes(600_000), project="b") for _ in range(3)]
    await flush
    assert all(append.done() for append in before)
    assert not after[-1].done()
    assert [ack.offset for ack in await asyncio.gather(*after)] == [4, 5, 6]


async def test_invalid_record_fails_log_instead_of_hanging(synced: EmbeddedLog) -> None:
    future = synced.append("t", 0, None, "text")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        await future
    assert isinstance(synced.failure, TypeError)


# --- how groups are cut ---------------------------------------------------------------------------------------------


async def test_rows_share_group_of_next_append(log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "until_tick", lambda now: 3600.0)
    for _ in range(3):
        append_soon(log, "t", 0, b"k", b"v")
        await asyncio.sleep(0)
    assert groups(log) == 0
    await log.append("t", 0, b"k", b"v")
    assert (groups(log), log.end(T0)) == (1, 4)


async def test_rows_are_written_without_waiter(log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "until_tick", lambda now: 0.0)
    written = asyncio.Event()
    log.deliver({"t"}, lambda tp, records: written.set())
    for expected in (1, 2):
        append_soon(log, "t", 0, b"k", b"v")
        await asyncio.wait_for(written.wait(), 60)
        written.clear()
        assert log.end(T0) == expected


async def test_flush_writes_rows_without_delay(log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "until_tick", lambda now: 3600.0)
    append_soon(log, "t", 0, b"k", b"v")
    await asyncio.wait_for(log.flush(), 60)
    assert log.end(T0) == 1


async def test_what_comes_in_consecutive_iterations_shares_a_group(log: EmbeddedLog) -> None:
    """But only so many of them: a record does not wait without end for others."""
    first = log.append("t", 0, b"k", b"v")
    rest = []
    for _ in range(3):
        rest.append(log.append("t", 0, b"k", b"v"))
        await asyncio.sleep(0)
    assert not first.done()
    await asyncio.gather(first, *rest)
    assert groups(log) == 1
    first = log.append("t", 0, b"k", b"v")
    for _ in range(writer.GATHERED + 2):
        log.append("t", 0, b"k", b"v")
        await asyncio.sleep(0)
    assert first.done()


async def test_group_waits_for_no_time(reopen: Reopen, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever sessions the groups before had: what may wait has waited when it came."""
    monkeypatch.setattr(writer, "until_tick", lambda now: 3600.0)
    log = await reopen(sync=True)
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", mock.Mock(side_effect=AssertionError))
    for key in (b"one", b"two"):
        for _ in range(3):
            future = log.append("t", 0, key, b"v")
            append_soon(log, "t", 0, b"row", b"v")
            await future
    assert groups(log) == 6
