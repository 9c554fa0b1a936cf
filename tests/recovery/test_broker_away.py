"""A broker outage: timely refusals, nothing acknowledged, and recovery without a restart when it returns."""

import asyncio
import time
from pathlib import Path

import pytest

from tests.kafka.broker import require_programs
from tests.kafka_launcher.launcher import KafkaCluster
from tests.lengths import length
from tests.ports import free_ports
from tests.process import ServiceProcess
from tests.recovery.load import Client
from tests.recovery.truth import expected_events

REFUSALS = length("REFUSALS", 3)
#: An upload waits 4.5 s for the log; the rest is for a busy machine.
REFUSED_SECONDS = 10.0

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(300 + 10 * REFUSALS)]


async def _refused(client: Client, session: str, number: int) -> float:
    """Upload during the outage; return how long the refusal took."""
    began = time.monotonic()
    answer = await client.http.put(f"/audio_sessions/{session}/chunks/{number}", json={"data": "AAA="})
    assert answer.status_code == 503, answer.text
    assert int(answer.headers["retry-after"]) >= 1
    return time.monotonic() - began


async def test_service_recovers_from_broker_outage(tmp_path: Path) -> None:
    """503 in time during the outage; afterwards the same process goes on, at another port of its list of brokers."""
    require_programs()
    here, there = free_ports(2)
    broker = f"kafka://127.0.0.1:{here},127.0.0.1:{there}"
    with (
        KafkaCluster(tmp_path / "kafka", port=here) as cluster,
        ServiceProcess(tmp_path / "data", broker=broker, partitions=4) as process,
    ):
        async with Client(process) as client:
            stream = await client.open()
            for _ in range(4):
                await client.put(stream, 1)
            await asyncio.to_thread(cluster.kill)
            for _ in range(REFUSALS):
                # Not the next number, so that it can never count as a chunk.
                assert await _refused(client, stream.session, 99) < REFUSED_SECONDS
            with KafkaCluster(tmp_path / "kafka", port=there):
                for _ in range(4):
                    await client.put(stream, 1)
                await client.seal(stream)
                assert await client.events(stream.session) == expected_events(stream.chunks)
                assert process.running, process.tail()
                assert "node.failed" not in process.log.read_text()
                assert process.stop() == 0
