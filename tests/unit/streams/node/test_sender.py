"""Parts of recordings wait for each other in turn by project, outside the log's queue."""

import asyncio
import random
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from streams.embedded.embedded_log import EmbeddedLog
from streams.folding.awaited_verdicts import Verdicts
from streams.log import RECORD_COST, Ack, StoredRecord
from streams.node import sender as module
from streams.node.owner import PartitionOwner
from streams.node.sender import RecordSender
from streams.quota import SharedQuota
from tests.examples import golden
from tests.garbage import uncollected
from tests.unit.streams.jobs.world import accepted
from tests.waiting import turn
from topics import keys, record_codec
from topics.catalog import COMMANDS, FOLDED, JOB_COMMANDS, TopicPartition
from topics.errors import Unavailable
from topics.folding import Answer, Verdict
from topics.jobs.records import Accepted, JobCommand, JobResult, Part
from topics.records import Record
from topics.sessions.records import Chunk, Opened, Sealed, SessionCommand

JOB = keys.new_id()
SHARE = 2000


class Owner:
    number = 0
    rows = SimpleNamespace(disk_full=None)
    sessions = SimpleNamespace(opened=lambda id: None, takes_commands=lambda id: True)

    def store(self, topic: str) -> object:
        return self.sessions

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
    """Accepts records; the test makes them durable."""

    def __init__(self) -> None:
        self.waiting: list[asyncio.Future[Ack]] = []
        self.values: list[bytes] = []

    def append(self, *args: Any, **kwargs: object) -> asyncio.Future[Ack]:
        self.values.append(args[3])
        self.waiting.append(asyncio.get_running_loop().create_future())
        return self.waiting[-1]


def upload(uploads: RecordSender, number: int, size: int) -> asyncio.Task[None]:
    return asyncio.create_task(uploads.upload(JOB_COMMANDS, JOB, Part("c", "u", number, bytes(size)), "p"))


def sender(writer: Any, part_bytes: int) -> RecordSender:
    owners: Any = Owners()
    return RecordSender(writer, owners, part_bytes, share_bytes=SHARE)


async def test_each_kind_of_record_is_delivered_as_it_was_sent_and_read_as_it_was_stored(tmp_path: Path) -> None:
    log, delivered = EmbeddedLog.open(tmp_path, sync=False), list[StoredRecord]()
    for topic in FOLDED:
        log.declare(topic, 1)
    log.deliver(FOLDED, lambda tp, records: delivered.extend(records))
    records, kinds = sender(log, 100), set[type[Record]]()
    for path in golden.examples(*FOLDED):
        topic, read = golden.topic(path), golden.reader(path)
        record: Record = read(path.with_suffix(".msgpack").read_bytes())
        await records.append(topic, JOB, record)
        assert delivered[-1].content is record
        [stored] = log.read(TopicPartition(topic, 0), delivered[-1].offset, 1, 1 << 30)
        assert (stored.content, stored.value) == (None, delivered[-1].value)
        assert repr(read(stored.value or b"")) == repr(record)
        kinds.add(type(record))
    assert kinds == {kind for union in (SessionCommand, JobCommand, JobResult) for kind in get_args(union)}
    await log.close()


async def test_abandoned_part_holds_room_until_it_leaves_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "VERDICT_SECONDS", 0.02)
    writer = Writer()
    uploads = sender(writer, 100)
    with pytest.raises(Unavailable, match="the log was too slow") as late:
        await upload(uploads, 0, 60)
    leaving = upload(uploads, 1, 40)
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(Unavailable, match="too many recordings are being uploaded") as refused:
        await upload(uploads, 2, 60)
    assert (late.value.uncertain, refused.value.uncertain, len(writer.waiting)) == (True, False, 2)
    writer.waiting[0].set_exception(Unavailable("dropped"))
    monkeypatch.setattr(module, "VERDICT_SECONDS", 60.0)
    task = upload(uploads, 2, 60)
    await turn()
    writer.waiting[2].set_result(Ack(0, 0))
    await task


async def test_project_over_its_queue_share_is_rejected_alone() -> None:
    writer = Writer()
    commands = sender(writer, 100)

    def submit(project: str) -> asyncio.Task[Verdict]:
        opened = Opened("c", "stream", "audio/wav", project, 1000, 500, metadata={"text": "x" * 1200})
        return asyncio.create_task(commands.submit(COMMANDS, JOB, opened))

    def send() -> None:
        commands.send(COMMANDS, JOB, Sealed("c"), lambda answer: None)

    tasks = [submit("loud")]
    await turn()
    with pytest.raises(Unavailable, match="share of the log's queue"):
        await submit("loud")
    assert len(commands.verdicts) == 1, "the first waits, the refused does not"
    tasks.append(submit("quiet"))
    await turn()
    # A durable record has left the queue.
    writer.waiting[0].set_result(Ack(0, 0))
    await turn()
    tasks.append(submit("loud"))
    await turn()
    assert len(writer.waiting) == 3
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    # Small records count as what they take in memory.
    for _ in range(SHARE // (RECORD_COST + len(JOB))):
        send()
    with pytest.raises(Unavailable, match="share of the log's queue"):
        send()


@pytest.mark.parametrize("room", [100, 10])
async def test_parts_wait_for_room_and_oversized_part_goes_alone(room: int) -> None:
    writer = Writer()
    uploads = sender(writer, room)
    tasks = [upload(uploads, number, 60) for number in range(3)]
    for durable in range(3):
        await turn()
        assert len(writer.waiting) == durable + 1
        writer.waiting[durable].set_result(Ack(durable, 0))
    await asyncio.gather(*tasks)


async def test_acceptance_does_not_overtake_waiting_parts() -> None:
    writer = Writer()
    uploads = sender(writer, 60)
    tasks: list[asyncio.Task[Any]] = [upload(uploads, number, 60) for number in range(2)]
    tasks.append(asyncio.create_task(uploads.submit(JOB_COMMANDS, JOB, accepted("u", 2))))
    for durable in range(3):
        await turn()
        writer.waiting[durable].set_result(Ack(durable, 0))
    await asyncio.gather(*tasks[:2])
    tasks[2].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(record_codec.decode_job_command(value)) for value in writer.values] == [Part, Part, Accepted]


# --- room for parts -------------------------------------------------------------------------------------------------


async def test_projects_enter_in_turn_and_requests_of_one_in_order() -> None:
    room, order = SharedQuota(10), list[tuple[str, int]]()
    deadline = asyncio.get_running_loop().time() + 60
    await room.enter("loud", 10, deadline)

    async def enter(project: str, number: int, size: int) -> None:
        await room.enter(project, size, deadline)
        order.append((project, number))
        room.leave(size)

    # An acceptance has no size, and waits for the parts before it.
    asked = [
        *(("loud", number, size) for number, size in enumerate((10, 6, 10, 3, 0))),
        ("quiet", 0, 10),
        ("quiet", 1, 10),
    ]
    tasks = [asyncio.create_task(enter(*one)) for one in asked]
    await turn()
    assert order == []
    room.leave(10)
    await asyncio.gather(*tasks)
    assert [project for project, _ in order[:5]] == ["loud", "quiet", "loud", "quiet", "loud"]
    assert [number for project, number in order if project == "loud"] == [0, 1, 2, 3, 4]


async def test_long_work_takes_turns_and_few_may_wait_for_it() -> None:
    room, order = SharedQuota(1, most_waiting=3), list[str]()

    async def work(project: str) -> None:
        async with room.admit(project):
            order.append(project)
            await turn()

    tasks = [asyncio.create_task(work(project)) for project in ("loud", "loud", "loud", "quiet", "late")]
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert (order, room.used) == (["loud", "loud", "quiet", "loud"], 0)
    assert str(ends[-1]) == "too many such requests wait already"


@pytest.mark.parametrize("seed", range(5))
async def test_cancelled_waits_leak_no_room_and_limit_holds(seed: int) -> None:
    chance = random.Random(seed)
    room, used = SharedQuota(10), 0
    loop = asyncio.get_running_loop()

    async def enter() -> None:
        nonlocal used
        size = chance.randrange(1, 12)
        try:
            await room.enter(chance.choice("abc"), size, loop.time() + chance.choice((0.001, 60)))
        except Unavailable:
            return
        used += size
        assert used <= 10 or used == size
        try:
            await asyncio.sleep(chance.random() / 1000)
        finally:
            used -= size
            room.leave(size)

    tasks = [asyncio.create_task(enter()) for _ in range(100)]
    for task in chance.sample(tasks, 30):
        await asyncio.sleep(chance.random() / 1000)
        task.cancel()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(end) for end in ends if end is not None} <= {asyncio.CancelledError}
    # All room has been released.
    await room.enter("d", 10, loop.time() + 60)


async def test_command_that_may_still_succeed_is_not_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "VERDICT_SECONDS", 0.01)
    sends = sender(Writer(), 100)
    sending = asyncio.create_task(sends.submit(COMMANDS, JOB, Chunk("c", 0, b"audio")))
    await asyncio.sleep(0)
    assert sends.verdicts.awaits("c")
    with pytest.raises(Unavailable, match="may still succeed"):
        await sending
    assert not sends.verdicts.awaits("c")


async def test_sent_commands_are_appended_in_order_and_answered_once() -> None:
    writer = Writer()
    sends, answers = sender(writer, 100), list[Answer]()
    for number in range(3):
        sends.send(COMMANDS, JOB, Chunk(f"c{number}", number, b"audio"), answers.append)
    assert writer.values == [record_codec.encode(Chunk(f"c{number}", number, b"audio")) for number in range(3)]
    sends.verdicts.resolve("c0", Verdict(200, 1))
    assert answers == [Verdict(200, 1)]
    writer.waiting[1].set_exception(Unavailable("the disk is full"))
    writer.waiting[2].set_exception(OSError("the disk is broken"))
    await asyncio.sleep(0)
    assert [str(answer) for answer in answers[1:]] == ["the disk is full", "the disk is broken"]
    assert isinstance(answers[2], Unavailable)
    assert not len(sends.verdicts)
    writer.waiting[0].set_result(Ack(0, 0))
    await asyncio.sleep(0)
    assert len(answers) == 3, "each is answered once"


async def test_answered_command_is_freed_at_once() -> None:
    writer = Writer()
    sends, data = sender(writer, 100), bytes(1000)
    held = sys.getrefcount(data)
    with uncollected():
        sends.send(COMMANDS, JOB, Chunk("c", 0, data), lambda answer: None)
        writer.waiting.pop().set_result(Ack(0, 0))
        await asyncio.sleep(0)
        assert sys.getrefcount(data) > held
        sends.verdicts.resolve("c", Verdict(200, 1))
        assert sys.getrefcount(data) == held


def test_lost_partition_answers_pending_commands() -> None:
    owner, answers = PartitionOwner(0), list[Answer]()
    verdicts = Verdicts()

    def finish(answer: Answer) -> None:
        owner.awaited.discard(call)
        answers.append(answer)

    call = verdicts.call("c", finish)
    owner.awaited.add(call)
    owner.close("it moved")
    owner.close("it moved")
    assert [str(answer) for answer in answers] == ["it moved"]
