"""A bare handler that decodes uploads and appends them to a log: `python -m benchmarks.bare.uploads PORT LOG`.

LOG is the directory of an embedded log, or `kafka://host:port`. Like the service it answers once the record is durable.
"""

import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import orjson
import pybase64
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import for_code
from starlette.requests import Request
from starlette.responses import Response

from benchmarks.bare.serving import run, serve
from streams.embedded.embedded_log import EmbeddedLog
from topics.keys import new_id, partition_of

TOPIC: Final = "bare.uploads"
EMBEDDED_PARTITIONS: Final = 4
KAFKA_PARTITIONS: Final = 16

Append = Callable[[int, bytes, bytes], Awaitable[object]]


async def open_embedded(directory: Path, stack: AsyncExitStack) -> Append:
    """Open an embedded log with the service's sync policy."""
    log = EmbeddedLog.open(directory)
    stack.push_async_callback(log.close)
    log.declare(TOPIC, EMBEDDED_PARTITIONS)
    return lambda partition, key, value: log.append(TOPIC, partition, key, value)


async def open_kafka(bootstrap: str, stack: AsyncExitStack) -> Append:
    """Start a producer with the service's batch size and linger."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        answer = await admin.create_topics([NewTopic(TOPIC, KAFKA_PARTITIONS, 1)])
    finally:
        await admin.close()
    for _, code, *reason in answer.topic_errors:
        if code:
            raise for_code(code)(*reason)
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, acks="all", enable_idempotence=True, linger_ms=2, max_batch_size=256 * 1024
    )
    await producer.start()
    stack.push_async_callback(producer.stop)

    async def append(partition: int, key: bytes, value: bytes) -> object:
        return await producer.send_and_wait(TOPIC, value, key=key, partition=partition)

    return append


async def serve_uploads(port: int, place: str) -> None:
    async with AsyncExitStack() as stack:
        kafka = place.startswith("kafka://")
        partitions = KAFKA_PARTITIONS if kafka else EMBEDDED_PARTITIONS
        append = await (
            open_kafka(place.removeprefix("kafka://"), stack) if kafka else open_embedded(Path(place), stack)
        )

        async def create(request: Request) -> Response:
            return _json({"session_id": new_id(), "chunk_sequence": 0})

        async def upload(request: Request) -> Response:
            session, sequence = request.path_params["session"], request.path_params["sequence"]
            audio = pybase64.b64decode(orjson.loads(await request.body())["data"], validate=True)
            await append(partition_of(session, partitions), session.encode(), audio)
            return _json({"session_id": session, "chunk_sequence": int(sequence) + 1})

        path = "/audio_sessions/{session}/chunks/{sequence}"
        await serve(port, ("POST", "/audio_sessions/", create), ("PUT", path, upload))


def _json(content: dict[str, object]) -> Response:
    return Response(orjson.dumps(content), media_type="application/json")


if __name__ == "__main__":
    run(serve_uploads(int(sys.argv[1]), sys.argv[2]))
