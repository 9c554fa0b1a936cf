"""Results wait for the changelog where the log keeps no order across topics."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from streams.node.sender import RecordSender
from topics import catalog, keys
from topics.errors import Unavailable
from topics.jobs.options import Service
from topics.jobs.records import Part, Started

JOB = keys.new_id()


class Writer:
    """Notes what is asked of it; records are durable when `durable` is set."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.durable = True

    async def flush(self) -> None:
        self.asked.append("flush")

    def append(self, topic: str, partition: int, key: bytes, value: bytes, *, bounded: bool) -> asyncio.Future[Any]:
        self.asked.append(f"{topic} {partition == keys.partition_of(JOB, 8)} {key == JOB.encode()} {bounded}")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.durable:
            future.set_result(None)
        return future


def sender(writer: Writer, ordered: bool) -> RecordSender:
    return RecordSender(SimpleNamespace(producer=SimpleNamespace(writer=writer)), 8, ordered)


@pytest.mark.parametrize(("ordered", "first", "flushed"), [(False, True, 1), (False, False, 0), (True, True, 0)])
def test_the_first_result_waits_for_a_flush_on_a_log_without_order(ordered: bool, first: bool, flushed: int) -> None:
    writer = Writer()
    asyncio.run(sender(writer, ordered).emit(catalog.JOB_RESULTS, JOB, Started(Service.SOUND, "r"), first=first))
    assert writer.asked == ["flush"] * flushed + [f"{catalog.JOB_RESULTS} True True False"]


def test_a_part_that_does_not_become_durable_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.node.sender.VERDICT_SECONDS", 0.01)
    writer = Writer()

    async def scene() -> None:
        await sender(writer, True).send(catalog.JOB_COMMANDS, JOB, Part("c", "u", 0, b"data"))
        writer.durable = False
        with pytest.raises(Unavailable, match="in time"):
            await sender(writer, True).send(catalog.JOB_COMMANDS, JOB, Part("c", "u", 1, b"data"))

    asyncio.run(scene())
    assert writer.asked == [f"{catalog.JOB_COMMANDS} True True True"] * 2
