"""Parts of recordings wait for each other, and not in the queue of the log."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from streams.log import Ack
from streams.node import sender as module
from streams.node.sender import RecordSender
from topics import keys, record_codec
from topics.catalog import COMMANDS, JOB_COMMANDS
from topics.errors import Unavailable
from topics.folding import Verdict
from topics.jobs.options import Options
from topics.jobs.records import Accepted, Part, Source
from topics.sessions.records import Opened

JOB = keys.new_id()


class Owner:
    number = 0
    rows = SimpleNamespace(disk_full=None)

    def __init__(self) -> None:
        self.awaited: set[object] = set()

    def touch(self, id: str) -> None:
        pass


class Owners:
    def serving(self, id: str) -> Owner:
        return Owner()

    async def ready(self, id: str, seconds: float) -> Owner:
        return Owner()


class Writer:
    """Takes what it gets; records are durable when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[asyncio.Future[Ack]] = []
        self.values: list[bytes] = []

    def append(self, *args: Any, **kwargs: object) -> asyncio.Future[Ack]:
        self.values.append(args[3])
        self.waiting.append(asyncio.get_running_loop().create_future())
        return self.waiting[-1]


def part(number: int, size: int) -> Part:
    return Part("c", "u", number, bytes(size))


def sender(writer: Any, part_bytes: int) -> RecordSender:
    owners: Any = Owners()
    return RecordSender(writer, owners, part_bytes, share_bytes=1000)


async def test_parts_wait_until_there_is_room_for_them() -> None:
    writer = Writer()
    uploads = sender(writer, 100)
    tasks = [asyncio.create_task(uploads.upload(JOB_COMMANDS, JOB, part(n, 60), "p")) for n in range(3)]
    for durable in range(3):
        await asyncio.sleep(0.01)
        assert len(writer.waiting) == durable + 1
        writer.waiting[durable].set_result(Ack(durable, 0))
    await asyncio.gather(*tasks)


async def test_a_part_that_is_larger_than_all_room_goes_alone() -> None:
    writer = Writer()
    task = asyncio.create_task(sender(writer, 10).upload(JOB_COMMANDS, JOB, part(0, 60), "p"))
    await asyncio.sleep(0.01)
    writer.waiting[0].set_result(Ack(0, 0))
    await task


async def test_an_upload_that_finds_no_room_or_is_not_taken_in_time_is_unavailable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "VERDICT_SECONDS", 0.02)
    uploads = sender(Writer(), 100)
    first, second = (asyncio.create_task(uploads.upload(JOB_COMMANDS, JOB, part(n, 60), "p")) for n in range(2))
    with pytest.raises(Unavailable, match="did not take the record in time"):
        await first
    with pytest.raises(Unavailable, match="too many recordings are being uploaded"):
        await second


async def test_a_part_that_was_given_up_has_its_room_until_it_left_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "VERDICT_SECONDS", 0.02)
    writer = Writer()
    uploads = sender(writer, 100)
    with pytest.raises(Unavailable, match="did not take the record in time"):
        await uploads.upload(JOB_COMMANDS, JOB, part(0, 60), "p")
    leaving = asyncio.create_task(uploads.upload(JOB_COMMANDS, JOB, part(1, 40), "p"))
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(Unavailable, match="too many recordings are being uploaded"):
        await uploads.upload(JOB_COMMANDS, JOB, part(2, 60), "p")
    assert len(writer.waiting) == 2
    writer.waiting[0].set_exception(Unavailable("dropped"))
    task = asyncio.create_task(uploads.upload(JOB_COMMANDS, JOB, part(2, 60), "p"))
    await asyncio.sleep(0.01)
    writer.waiting[2].set_result(Ack(0, 0))
    await task


async def test_a_project_that_fills_its_share_is_refused_and_others_are_not() -> None:
    writer = Writer()
    commands = sender(writer, 100)

    def submit(project: str) -> asyncio.Task[Verdict]:
        opened = Opened("c", "stream", "audio/wav", project, 1000, 500, metadata={"text": "x" * 600})
        return asyncio.create_task(commands.submit(COMMANDS, JOB, opened))

    first = submit("loud")
    await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="share of the log's queue"):
        await submit("loud")
    second = submit("quiet")
    await asyncio.sleep(0)
    assert len(writer.waiting) == 2
    # What is durable is out of the queue.
    writer.waiting[0].set_result(Ack(0, 0))
    await asyncio.sleep(0.01)
    third = submit("loud")
    await asyncio.sleep(0)
    assert len(writer.waiting) == 3
    for task in (first, second, third):
        task.cancel()
    await asyncio.gather(first, second, third, return_exceptions=True)


async def test_an_acceptance_does_not_overtake_parts_that_wait() -> None:
    writer = Writer()
    uploads = sender(writer, 60)
    source = Source("audio/wav", "wav", 120, 8000, 1)
    accepted = Accepted("c", "u", 2, "p", "o", Options(), source, "m", b"")
    tasks: list[asyncio.Task[Any]] = [
        asyncio.create_task(uploads.upload(JOB_COMMANDS, JOB, part(n, 60), "p")) for n in range(2)
    ]
    tasks.append(asyncio.create_task(uploads.submit(JOB_COMMANDS, JOB, accepted)))
    for durable in range(3):
        await asyncio.sleep(0.01)
        writer.waiting[durable].set_result(Ack(durable, 0))
    await asyncio.gather(*tasks[:2])
    tasks[2].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(record_codec.decode_job_command(value)) for value in writer.values] == [Part, Part, Accepted]
