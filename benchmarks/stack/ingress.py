"""The stack's process that speaks HTTP: `python -m benchmarks.stack.ingress PORT BOOTSTRAP PARTITIONS MODEL DIRECTORY`.

Chunks go to the audio topic and are answered once all replicas have them; windows come from the result topic into
RocksDB. It starts the worker, and ends when that ends.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import orjson
import pybase64
import uvloop
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from starlette.requests import Request
from starlette.responses import Response

from benchmarks import audio, kafka_topics
from benchmarks.bare.serving import serve
from benchmarks.stack.records import AUDIO, RESULTS
from benchmarks.stack.table import Stream, WindowTable, wait_for_window
from topics.keys import new_id, partition_of

POLL_SECONDS: Final = 9.0
PAGE: Final = 1024
BATCH_BYTES: Final = 256 * 1024
#: Chunks of a partition that the producer has: a batch on the way and one that fills. Whoever comes to a full batch is
#: woken with everybody else who did at each one that leaves, and with a thousand streams some wait past the timeout.
OUTSTANDING: Final = 2 * (BATCH_BYTES // audio.CHUNK_BYTES - 1)
#: Seconds between polls of the result topic: records that come meanwhile come in one answer.
PACE: Final = 0.002


class Ingress:
    """The three handlers, which the load process uses."""

    def __init__(self, producer: AIOKafkaProducer, table: WindowTable, partitions: int) -> None:
        self._producer = producer
        self._table = table
        self._partitions = partitions
        self._lanes = [asyncio.Semaphore(OUTSTANDING) for _ in range(partitions)]

    async def create(self, request: Request) -> Response:
        """POST /audio_sessions/."""
        id = new_id()
        key = id.encode("ascii")
        self._table.streams[key] = Stream(key, partition_of(id, self._partitions))
        return _json(b'{"session_id":"%s","chunk_sequence":0}' % key)

    async def upload(self, request: Request) -> Response:
        """PUT /audio_sessions/{session}/chunks/{sequence}: answered when the chunk is durable."""
        stream = self._stream(request)
        if stream is None:
            return Response(status_code=404)
        if int(request.path_params["sequence"]) != stream.chunks:
            return Response(status_code=409)
        chunk = pybase64.b64decode(orjson.loads(await request.body())["data"], validate=True)
        stream.chunks += 1
        async with self._lanes[stream.partition]:
            await self._producer.send_and_wait(AUDIO, chunk, key=stream.key, partition=stream.partition)
        return _json(b'{"session_id":"%s","chunk_sequence":%d}' % (stream.key, stream.chunks))

    async def status(self, request: Request) -> Response:
        """GET /audio_sessions/{session}/status: a page of windows; waits while it is empty."""
        stream = self._stream(request)
        if stream is None:
            return Response(status_code=404)
        query = request.query_params
        first = int(query.get("next_token") or query.get("offset") or 0)
        if stream.windows <= first:
            await wait_for_window(stream, first, POLL_SECONDS)
        end = max(first, min(first + PAGE, stream.windows))
        return _json(
            b'{"state":"writable","refs":{"session_id":"%s","chunk_sequence":%d},"inference":{"in_progress":%s,'
            b'"page":{"count":%d,"offset":%d,"total":%d,"next_token":"%d"},"results":[%s]}}'
            % (
                stream.key,
                stream.chunks,
                b"true" if stream.windows < stream.chunks - 1 else b"false",
                end - first,
                first,
                stream.windows,
                end,
                self._table.events(stream, first, end),
            )
        )

    def _stream(self, request: Request) -> Stream | None:
        return self._table.streams.get(request.path_params["session"].encode("ascii"))


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")


async def follow(consumer: AIOKafkaConsumer, table: WindowTable, ready: asyncio.Event) -> None:
    """Bring what comes on the result topic into the table; a record without a key says that the worker is ready."""
    while True:
        batches = await consumer.getmany(timeout_ms=1000)
        records = [(record.key, record.value) for batch in batches.values() for record in batch]
        if any(key is None for key, _ in records):
            ready.set()
        table.put((key, value) for key, value in records if key is not None)
        await asyncio.sleep(PACE)


async def run_worker(*arguments: str) -> None:
    """Run the worker until this is cancelled.

    Raises:
        RuntimeError: it ended by itself.
    """
    command = sys.executable, "-m", "benchmarks.stack.worker", *arguments
    # The worker ends with this pipe, however this process ends.
    worker = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE)
    try:
        raise RuntimeError(f"the worker ended with {await worker.wait()}")
    finally:
        if worker.returncode is None:
            worker.kill()
            await worker.wait()


async def run(port: int, bootstrap: str, partitions: int, model: str, directory: Path) -> None:
    """Serve until the process or its worker is ended."""
    await kafka_topics.make(bootstrap, (AUDIO, RESULTS), partitions)
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        table = WindowTable(directory / "windows")
        stack.callback(table.close)
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, acks="all", enable_idempotence=True, linger_ms=2, max_batch_size=BATCH_BYTES
        )
        await producer.start()
        stack.push_async_callback(producer.stop)
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False)
        consumer.assign([TopicPartition(RESULTS, number) for number in range(partitions)])
        await consumer.start()
        stack.push_async_callback(consumer.stop)
        ready = asyncio.Event()
        tasks = [
            group.create_task(follow(consumer, table, ready)),
            group.create_task(run_worker(bootstrap, str(partitions), model, str(directory / "recovery"))),
        ]
        await ready.wait()
        ingress = Ingress(producer, table, partitions)
        session = "/audio_sessions/{session}"
        await serve(
            port,
            ("POST", "/audio_sessions/", ingress.create),
            ("PUT", f"{session}/chunks/{{sequence}}", ingress.upload),
            ("GET", f"{session}/status", ingress.status),
        )
        for task in tasks:
            task.cancel()


def main() -> None:
    """Serve until ended."""
    port, bootstrap, partitions, model, directory = sys.argv[1:]
    gc.freeze()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(int(port), bootstrap, int(partitions), model, Path(directory)))


if __name__ == "__main__":
    main()
