"""How records reach Kafka: a queue before aiokafka's producer that knows the fate of every record."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from aiokafka.errors import KafkaError

from streams.log import Ack
from topics.catalog import TopicPartition
from topics.errors import Unavailable


class _Append(NamedTuple):
    """A record on its way, and the future of its fate."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    future: asyncio.Future[Ack] | None
    size: int
    span: _Span


class _Span:
    """The records enqueued between two flushes: how many are not settled, and the flush that ended the span."""

    __slots__ = ("done", "left")

    def __init__(self) -> None:
        self.left = 0
        self.done: asyncio.Future[None] | None = None


#: aiokafka's own bookkeeping for one record.
OVERHEAD: Final = 100


class KafkaWriter:
    """The `LogWriter` of Kafka: feeds an aiokafka producer from a queue, and knows the fate of every record."""

    def __init__(self, limit: int, fail: Callable[[BaseException], None]) -> None:
        self.limit = limit
        self.queued_bytes = 0
        self._fail = fail
        self._queue: deque[_Append] = deque()
        self._wake = asyncio.Event()
        self._spans = deque([_Span()])
        self._ends: dict[tuple[str, int], int] = {}
        self._failure: BaseException | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, producer: Any) -> None:
        """Begin to feed a started producer."""
        self._task = asyncio.create_task(self._feed(producer), name="kafka-writer")

    async def stop(self) -> None:
        """Stop feeding; the futures of records that were not sent and of flushes fail with Unavailable."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for future in (*(item.future for item in self._queue), *(span.done for span in self._spans)):
            if future is not None and not future.done():
                future.set_exception(Unavailable("the writer stopped"))

    def append(
        self, topic: str, partition: int, key: bytes | None, value: bytes | None, *, bounded: bool = True
    ) -> asyncio.Future[Ack]:
        """Enqueue a record at once; the future resolves when it is durable.

        Raises:
            Unavailable: the queue is full (only when `bounded`); nothing was enqueued. The future raises it when the
                broker does not take the record.
        """
        size = OVERHEAD + len(key or b"") + len(value or b"")
        if bounded and self.queued_bytes + size > self.limit:
            raise Unavailable(f"{self.queued_bytes} bytes wait for the broker")
        future: asyncio.Future[Ack] = asyncio.get_running_loop().create_future()
        self._put(topic, partition, key, value, future, size)
        return future

    def append_soon(self, topic: str, partition: int, key: bytes | None, value: bytes | None) -> None:
        """Enqueue a record that nobody waits for; its failure ends the process, and fails every later flush."""
        size = OVERHEAD + len(key or b"") + len(value or b"")
        self._put(topic, partition, key, value, None, size)

    def _put(self, topic: str, partition: int, key: bytes | None, value: bytes | None, future: Any, size: int) -> None:
        span = self._spans[-1]
        span.left += 1
        self.queued_bytes += size
        self._queue.append(_Append(topic, partition, key, value, future, size, span))
        self._wake.set()

    async def flush(self) -> None:
        """Return once everything enqueued before is settled; raise when a record failed that nobody waited for."""
        span = self._spans[-1]
        if span.left or len(self._spans) > 1:
            span.done = asyncio.get_running_loop().create_future()
            self._spans.append(_Span())
            await span.done
        if self._failure is not None:
            raise self._failure

    def end(self, tp: TopicPartition) -> int | None:
        """Return the offset after the last durable record of this process, None when it wrote none."""
        return self._ends.get(tp)

    async def _feed(self, producer: Any) -> None:
        while True:
            while not self._queue:
                self._wake.clear()
                await self._wake.wait()
            item = self._queue.popleft()
            try:
                sent = await producer.send(item.topic, item.value, key=item.key, partition=item.partition)
            except KafkaError as error:
                self._settle(item, None, error)
            except asyncio.CancelledError:
                self._queue.appendleft(item)
                raise
            except Exception as error:  # A fault of ours: nothing says what became of the record.
                self._settle(item, None, error)
                self._fail(error)
            else:
                sent.add_done_callback(lambda done, item=item: self._on_sent(item, done))

    def _on_sent(self, item: _Append, sent: asyncio.Future[Any]) -> None:
        error = asyncio.CancelledError("the producer stopped") if sent.cancelled() else sent.exception()
        self._settle(item, None if error else sent.result(), error)

    def _settle(self, item: _Append, sent: Any, error: BaseException | None) -> None:
        self.queued_bytes -= item.size
        item.span.left -= 1
        if error is None:
            self._ends[item.topic, item.partition] = sent.offset + 1
            if item.future is not None and not item.future.done():
                item.future.set_result(Ack(sent.offset, sent.timestamp))
        elif item.future is not None:
            if not item.future.done():
                item.future.set_exception(Unavailable(f"the broker did not take the record: {error!r}"))
        elif self._failure is None:
            self._failure = error
            self._fail(error)
        while len(self._spans) > 1 and not self._spans[0].left:
            done = self._spans.popleft().done
            if done is not None and not done.done():
                done.set_result(None)
