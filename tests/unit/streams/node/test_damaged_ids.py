"""One damaged session or job: each of its commands is answered, and its partition goes on."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streams.node.node import Node
from streams.node.partition_consumer import PARKED_AT_LEAST
from tests.unit.streams.node.nodes import Home, in_partition, log_of, scores, send, tp, view
from tests.unit.streams.sessions.studio import STREAM, sound, truth
from tests.waiting import until
from topics import keys
from topics.catalog import COMMANDS, COMMANDS_PARKED, JOB_COMMANDS_PARKED
from topics.errors import Damaged, EarshotError
from topics.folding import Answer
from topics.jobs.records import Part, Removed
from topics.sessions import commands
from topics.sessions.records import Chunk, Deleted, Sealed, SessionCommand

NUMBER = 1


def parked(node: Node, session: str, topic: str = COMMANDS_PARKED) -> int:
    return len(log_of(node).read(tp(topic, session), 0, 1000, 1 << 30))


def damage(node: Node, id: str, kind: bytes, number: int | None = None, room: bytes = keys.SESSION) -> None:
    """Damage one row, as a disk or a newer version may, and forget what was decoded."""
    owner = node.owners.here[NUMBER]
    owner.rows.write({keys.row_key(room, id, kind, number): b"\x09 of a later version"})
    for store in (owner.sessions, owner.jobs):
        store.remember(id, None)


async def sent(node: Node, session: str, command: SessionCommand) -> Answer:
    """Send like a socket, without a time limit."""
    answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    node.sessions.send(session, command, answer.set_result)
    return await asyncio.wait_for(answer, 60)


async def check_others(node: Node) -> None:
    """Analyse another session of the partition."""
    good, data = in_partition(NUMBER), sound(1)
    await send(node, good, STREAM, Chunk("c", 0, data), Sealed("s"))
    await until(lambda: view(node, good).head.finished)
    assert scores(node, good) == truth(data)
    assert node.owners.here[NUMBER].stopped is None


async def test_each_command_on_damaged_session_is_answered(tmp_path: Path) -> None:
    """Retries were parked as unreadable records: they got no verdict, and the twentieth stopped the partition."""
    home, bad = Home(tmp_path), in_partition(NUMBER)
    async with home.serving() as node:
        await send(node, bad, STREAM, Chunk("c", 0, sound(1), b"key"))
        damage(node, bad, keys.RECEIPT, 0)
        again = Chunk("d", 0, sound(1), b"key")
        # Appended before the first verdict, as by a socket: the fold meets the row.
        flying = [
            asyncio.ensure_future(sent(node, bad, msgspec.structs.replace(again, command=f"e{n}"))) for n in range(41)
        ]
        assert {type(answer) for answer in await asyncio.gather(*flying)} == {Damaged}
        await until(lambda: parked(node, bad) == len(flying))
        for _ in range(PARKED_AT_LEAST):
            with pytest.raises(Damaged, match=r"is damaged: .* nothing was accepted"):
                await send(node, bad, again)
            with pytest.raises(Damaged):
                await sent(node, bad, again)
        assert parked(node, bad) == len(flying), "known to be damaged, so nothing is appended"
    async with home.serving() as node:
        with pytest.raises(Damaged):
            await send(node, bad, again)
        await check_others(node)
    assert home.failures == 0


@pytest.mark.parametrize("kind", [keys.HEAD, keys.REQUEST])
async def test_session_and_job_with_damaged_rows_answer(node: Node, kind: bytes) -> None:
    bad, job = in_partition(NUMBER), in_partition(NUMBER)
    await send(node, bad, STREAM, Chunk("c", 0, sound(1)))
    await node.jobs.upload(job, Part("c", "u", 0, b"data"), "p")
    await until(lambda: node.owners.here[NUMBER].jobs.head(job) is not None)
    damage(node, bad, kind)
    damage(node, job, kind, room=keys.JOB)
    for command in (Chunk("d", 1, sound(1)), Sealed("e"), STREAM):
        with pytest.raises(Damaged):
            await send(node, bad, command)
    with pytest.raises(Damaged):
        await node.jobs.upload(job, Part("c", "u", 1, b"data"), "p")
    if kind == keys.HEAD:
        for _ in range(PARKED_AT_LEAST):
            with pytest.raises(Damaged):
                await send(node, bad, Deleted("d"))
            with pytest.raises(Damaged):
                await node.jobs.submit(job, Removed("d"))
        with pytest.raises(Damaged):
            node.sessions.view(bad)
        await until(lambda: parked(node, job, JOB_COMMANDS_PARKED) == PARKED_AT_LEAST)
    await check_others(node)


async def test_session_with_damaged_audio_row_can_be_deleted(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "MOST_RECENT", 1)
    node.session_workload.analyser.enqueue = lambda session: None  # type: ignore[method-assign]
    bad = in_partition(NUMBER)
    await send(node, bad, STREAM, Chunk("c", 0, sound(1)), Chunk("d", 1, sound(1)))
    damage(node, bad, keys.AUDIO, 0)
    assert (await send(node, bad, Deleted("e")))[0].status == 204
    assert node.sessions.view(bad) is None


async def test_bug_sets_its_session_aside_and_many_stop_partition(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session is one fault, however often it is tried; a bug that hits all sessions must not set all aside."""
    bad = [in_partition(NUMBER) for _ in range(PARKED_AT_LEAST)]

    def step(head: Any, command: Any, arrival: Any) -> Any:
        if isinstance(command, Sealed):
            raise KeyError("a bug")
        return commands.fold_command(head, command, arrival)

    monkeypatch.setattr(node.session_workload.intake, "step", step)
    await send(node, bad[0], STREAM)
    for _ in range(PARKED_AT_LEAST):
        with pytest.raises(Damaged):
            await send(node, bad[0], Sealed("s"))
        await log_of(node).append(*tp(COMMANDS, bad[0]), bad[0].encode(), b"\x01" + msgspec.msgpack.encode(Sealed("s")))
    assert (await send(node, bad[0], Deleted("d")))[0].status == 204
    assert (await send(node, bad[0], Chunk("c", 0, sound(1))))[0].status == 404, "it is gone, and not damaged"
    for id in bad[1:]:
        assert node.owners.here[NUMBER].stopped is None
        await send(node, id, STREAM)
        with pytest.raises(EarshotError, match=r"is damaged|has stopped"):
            await send(node, id, Sealed("s"))
    await until(lambda: node.owners.here[NUMBER].stopped is not None)


@pytest.mark.parametrize("known", [True, False], ids=["head in memory", "head forgotten"])
async def test_unreadable_windows_end_only_their_session(node: Node, known: bool) -> None:
    bad, data = in_partition(NUMBER), sound(1)
    await send(node, bad, STREAM, Chunk("c", 0, data))
    await until(lambda: view(node, bad).head.windows == 1)
    store = node.owners.here[NUMBER].sessions
    head = store.head(bad)
    damage(node, bad, keys.NEWEST)
    if known:
        store.remember(bad, head)
        await send(node, bad, Chunk("c1", 1, sound(1)))
        await until(lambda: bad in store.aside)
    with pytest.raises(Damaged):
        await send(node, bad, Chunk("d", 5, data))
    await check_others(node)
    # Its analysis ends, as that of the others.
    await until(lambda: len(node.session_workload.analyser.ready) == 0)


async def test_parked_record_leaves_nothing_in_memory(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its audio pinned the log's floor until a restart, and its digest counted as the chunk's."""
    bad = in_partition(NUMBER)
    await send(node, bad, STREAM)
    intake, store = node.session_workload.intake, node.owners.here[NUMBER].sessions
    keep = intake.keep_audio

    def keep_and_fail(*arguments: Any) -> None:
        keep(*arguments)
        raise KeyError("a bug")

    monkeypatch.setattr(intake, "keep_audio", keep_and_fail)
    with pytest.raises(Damaged):
        await send(node, bad, Chunk("c", 0, sound(1)))
    assert len(store.references) == 0
    assert node.session_workload.audio.size == 0
    assert intake.digest(store, bad, 0) is None
