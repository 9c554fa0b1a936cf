"""Kafka behind Faust's transport classes: the hardened consumer and producer over the aiokafka driver of Faust."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import structlog
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from streams.driver.consumer import BatchConsumer
from streams.driver.guarantee import refuse_exactly_once
from streams.driver.producer import RecordProducer
from streams.kafka.writer import KafkaWriter

log = structlog.get_logger(__name__)


class ConsumerThread(driver.AIOKafkaConsumerThread):  # type: ignore[misc]
    """The thread that talks to Kafka; a commit that Kafka refuses does not end it."""

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        """Commit; False when the broker is away or a rebalance has begun: the next interval commits again."""
        consumer = self._ensure_consumer()
        assigned = self.assignment()
        try:
            await consumer.commit({driver.ensure_aiokafka_TP(tp): at for tp, at in offsets.items() if tp in assigned})
        except (CommitFailedError, IllegalStateError, KafkaError) as error:
            log.warning("commit.failed", error=repr(error))
            return False
        return True


class Consumer(BatchConsumer, driver.Consumer):  # type: ignore[misc]
    """Kafka consumer that delivers whole polls."""

    def _new_consumer_thread(self) -> ConsumerThread:
        return ConsumerThread(self, loop=self.loop, beacon=self.beacon)


class Producer(RecordProducer, driver.Producer):  # type: ignore[misc]
    """Kafka producer: idempotent, acks from all in-sync replicas."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.writer: KafkaWriter = KafkaWriter(self.app.queue_bytes, self._failed)

    def _failed(self, error: BaseException) -> None:
        self.app._crash(error)

    def _settings_extra(self) -> Mapping[str, Any]:
        # Not exposed by Faust outside exactly_once; without it a retry may write a record twice.
        return {"acks": "all", "enable_idempotence": True}

    async def on_start(self) -> None:
        """Start the client, then the queue before it."""
        await super().on_start()
        self.writer.start(self._producer)

    async def on_stop(self) -> None:
        """Stop the queue, then the client, which sends what it has."""
        await self.writer.stop()
        await super().on_stop()


class Transport(driver.Transport):  # type: ignore[misc]
    """Kafka as a Faust transport, `kafka://`."""

    Consumer: ClassVar[Any] = Consumer
    Producer: ClassVar[Any] = Producer

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        refuse_exactly_once(self.app)
