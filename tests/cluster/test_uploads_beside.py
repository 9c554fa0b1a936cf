"""Uploaded recordings do not block live audio, even with slow brokers."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.nodes import Settings, service_nodes
from tests.contract.api import RATE, wav
from tests.kafka.broker import launched_kafka
from tests.kafka.proxy import KafkaProxy
from tests.process import ServiceProcess
from tests.recovery.load import Client

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

UPLOADS = 16
#: 4 MB each, so that two do not fit into the queue together.
RECORDING_SECONDS = 125
QUEUE_BYTES = 4 * 1024 * 1024
DELAY_SECONDS = 0.1
#: Chunks of the live stream, and recordings that are accepted or refused meanwhile.
CHUNKS = 30
RECORDINGS = 8


async def _upload(client: Client, audio: bytes, answers: list[int]) -> None:
    """Upload a recording repeatedly, whether accepted or not, faster than the log drains."""
    files: Any = {"options": (None, '{"sound_event_detection": true}'), "audio": ("a.wav", audio, "audio/x-wav")}
    while True:
        answer = await client.http.post("/api/v1/analyze_file", files=files, headers={"X-Api-Key": client.service.key})
        answers.append(answer.status_code)


async def _live(node: ServiceProcess, proxy: KafkaProxy) -> Counter[str]:
    """Upload chunks of a live stream while recordings arrive; return the status counts of the chunks."""
    answers: Counter[str] = Counter()
    others: list[int] = []
    audio = wav(bytes(2 * RATE * RECORDING_SECONDS))
    async with Client(node, patience=60.0) as client:
        stream = await client.open()
        proxy.delay = DELAY_SECONDS
        uploads = [asyncio.create_task(_upload(client, audio, others)) for _ in range(UPLOADS)]
        while answers.total() < CHUNKS or len(others) < RECORDINGS:
            number = answers["200"]
            answer = await client.http.put(
                f"/audio_sessions/{stream.session}/chunks/{number}",
                json={"data": "AAAA" * 2000},
                headers={"Idempotency-Key": f"{number}"},
            )
            answers["200" if answer.status_code == 200 else answer.text] += 1
            await asyncio.sleep(0.05)
        for upload in uploads:
            assert not upload.done(), upload
            upload.cancel()
        await asyncio.gather(*uploads, return_exceptions=True)
    proxy.delay = 0.0
    return answers


def test_uploads_do_not_block_live_chunks(tmp_path: Path) -> None:
    with KafkaProxy(1) as proxy, launched_kafka(1, [proxy.ports]) as cluster:
        proxy.open({door.advertised: door.port for door in cluster.doors[0]})
        own: Settings = {"broker": f"kafka://{proxy.bootstrap}", "queue_bytes": QUEUE_BYTES}
        with service_nodes(tmp_path, own, cluster=cluster) as (node,):
            answers = asyncio.run(_live(node.start(), proxy))
    assert set(answers) == {"200"}, answers
