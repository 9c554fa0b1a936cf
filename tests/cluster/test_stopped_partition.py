"""Garbage in one partition of a command topic: it stops, all else serves, and an operator skips what cannot be read."""

import asyncio
import json
from base64 import b64decode
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.nodes import PARTITIONS, service_nodes, start, start_again
from tests.kafka.records import records, spoil
from tests.process import ServiceProcess, ask
from tests.recovery.load import Client, Stream
from tests.waiting import wait_for
from topics import record_codec
from topics.catalog import APP, COMMANDS, COMMANDS_PARKED
from topics.keys import partition_of

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

GARBAGE = 41


def _topic(node: ServiceProcess, name: str) -> str:
    return node.environment["EARSHOT_KAFKA_PREFIX"] + name.removeprefix(APP)


def _bootstrap(node: ServiceProcess) -> str:
    return node.environment["EARSHOT_BROKER"].removeprefix("kafka://")


def _parked(node: ServiceProcess) -> Counter[int]:
    """Return how often each offset is on the dead-letter topic."""
    found = asyncio.run(records(_bootstrap(node), _topic(node, COMMANDS_PARKED), PARTITIONS))
    return Counter(record_codec.decode_parked(record.value).offset for record in found)


def _is_parked(node: ServiceProcess, offset: int) -> bool:
    return _parked(node)[offset] == 1


def _stopped(node: ServiceProcess) -> Any:
    return json.loads(node.command("partitions", "list", "--json"))


def _missing(node: ServiceProcess) -> Any:
    return node.operate("GET", "/nodes")["missing"]


async def _stream(node: ServiceProcess) -> Stream:
    async with Client(node) as client:
        stream = await client.open()
        await client.put(stream, 1)
        return stream


async def _check(nodes: Sequence[ServiceProcess], bad: Stream, good: Stream) -> None:
    """Use each node: it is ready, all but the stopped partition serves, and a refusal names the cause."""
    for node in nodes:
        assert (await asyncio.to_thread(ask, "GET", f"{node.url}/readyz")).status_code == 200
        async with Client(node) as client:
            await client.put(good, 1)
            await client.put(await client.open(), 2)
        refused = await asyncio.to_thread(ask, "GET", f"{node.url}/audio_sessions/{bad.session}/status")
        assert refused.status_code == 503
        assert "records of" in refused.text
        assert "cannot be read" in refused.text


def test_garbage_stops_one_partition_until_operator_skips_it(tmp_path: Path) -> None:
    with service_nodes(tmp_path, {}, {}) as nodes:
        start_again(nodes)
        one, two = nodes
        bad, good = (asyncio.run(_stream(node)) for node in nodes)
        number = partition_of(bad.session, PARTITIONS)
        asyncio.run(spoil(_bootstrap(one), _topic(one, COMMANDS), number, GARBAGE))
        wait_for(lambda: _missing(two) and _stopped(two), 60)
        asyncio.run(_check(nodes, bad, good))
        parked = _parked(one)
        assert set(parked.values()) == {1}
        for node in nodes:
            node.kill()
        start(*nodes)
        wait_for(lambda: not _missing(one)[1:] and _stopped(one), 60)
        asyncio.run(_check(nodes, bad, good))
        assert _parked(one) == parked, "a takeover parked them again"
        assert [stop["partition"] for stop in _stopped(one)] == [number]
        # Nothing has to run for a decision.
        for node in nodes:
            node.stop()
        one.command("partitions", "skip", str(number), "--yes")
        start(*nodes)
        wait_for(lambda: not _stopped(one), 60)
        asyncio.run(_finish(two, bad))
        parked = _parked(one)
        assert (len(parked), set(parked.values())) == (GARBAGE, {1})
        # Any node shows a dead letter and puts it back; the owner sets it aside again, at its new place.
        place = f"{_topic(one, COMMANDS)}/{number}/{min(parked)}"
        for node in nodes:
            letter = node.operate("GET", f"/dead-letters/{place}")
            assert b64decode(letter["value"]).startswith(b"\xff garbage")
            offset = node.operate("POST", f"/dead-letters/{place}")["offset"]
            wait_for(partial(_is_parked, one, offset), 60)
        assert '"bad"' not in one.command("doctor", "--json")


async def _finish(node: ServiceProcess, stream: Stream) -> None:
    async with Client(node) as client:
        await client.put(stream, 1)
        await client.seal(stream)
