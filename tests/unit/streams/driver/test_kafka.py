"""The Kafka driver: commits that the broker refuses, and records that name no partition."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from aiokafka.errors import CommitFailedError, KafkaTimeoutError
from faust.types import TP

from streams.driver.kafka import ConsumerThread
from streams.driver.producer import RecordProducer
from streams.kafka.writer import KafkaWriter


class Committing(ConsumerThread):
    """The thread's commit without the thread."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error
        self.committed: list[Mapping[Any, int]] = []

    def _ensure_consumer(self) -> Any:
        return self

    def assignment(self) -> set[TP]:
        return {TP("t", 0)}

    async def commit(self, offsets: Mapping[Any, int]) -> None:
        if self.error is not None:
            raise self.error
        self.committed.append(offsets)

    def __repr__(self) -> str:
        return "thread"


@pytest.mark.parametrize("error", [None, CommitFailedError(), KafkaTimeoutError()], ids=repr)
def test_a_commit_that_kafka_refuses_is_no_reason_to_die(error: Exception | None) -> None:
    thread = Committing(error)
    assert asyncio.run(thread._commit({TP("t", 0): 5, TP("t", 1): 7})) is (error is None)
    assert [dict(offsets) for offsets in thread.committed] == ([{TP("t", 0): 5}] if error is None else [])


def test_a_record_without_a_partition_is_refused() -> None:
    producer = object.__new__(RecordProducer)
    producer.writer = KafkaWriter(0, lambda error: None)
    with pytest.raises(NotImplementedError, match="does not name its partition"):
        producer.key_partition("t", b"k")
    with pytest.raises(NotImplementedError, match="does not name its partition"):
        asyncio.run(producer.send("t", b"k", b"v", None))
