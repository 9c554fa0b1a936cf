"""Reading single records of Kafka again."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka.errors import KafkaConnectionError

from streams.kafka import reader as module
from streams.kafka.reader import KafkaReader
from topics.errors import Unavailable


def test_a_reader_that_cannot_begin_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    class Away:
        def __init__(self, **settings: object) -> None:
            pass

        async def start(self) -> None:
            calls.append("start")
            raise KafkaConnectionError

        async def stop(self) -> None:
            calls.append("stop")

    monkeypatch.setattr(module, "AIOKafkaConsumer", Away)

    async def scene() -> None:
        reader = KafkaReader(["localhost:9092"], 2**20, "t")
        with pytest.raises(Unavailable, match="does not give audio back"):
            await anext(reader.read(0, [0]))
        await reader.stop()

    asyncio.run(scene())
    assert calls == ["start", "stop"]
