"""Three nodes on one Kafka: while the owner of a session is dead, another node's stand-by is read."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Any

import httpx2
import pytest

from streams.node.partitions import NOTE_SECONDS
from tests import sse
from tests.cluster.nodes import service_nodes, start_again
from tests.contract.api import tone, wav
from tests.lengths import SESSION_SECONDS, length
from tests.process import ServiceProcess
from tests.recovery.load import Client
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

#: Kills of an owner.
KILLS = length("STANDBY_KILLS", 1)
#: Seconds between the reads of a reader, and the longest without an answer; beside other tests, still less than until
#: the broker notices a death.
POLL_SECONDS = 0.1
GAP_SECONDS = 1.0 if KILLS > 1 else SESSION_SECONDS - 0.5


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ServiceProcess]]:
    with service_nodes(tmp_path_factory.mktemp("nodes"), {}, {}, {}) as three:
        start_again(three)
        yield three


class Reader:
    """Reads a page again and again, at one node, as a client with retries."""

    def __init__(self, url: str, path: str, key: str) -> None:
        self._url, self._headers = url + path, {"X-Api-Key": key}
        #: Longest time between two answers.
        self.gap = 0.0
        #: For each answer what it says, and up to when a stand-by knew that, "" for an owner.
        self.seen: list[Any] = []
        self.as_of: list[str] = []

    async def run(self) -> None:
        async with httpx2.AsyncClient(timeout=60) as http:
            last = time.monotonic()
            while True:
                answer = await http.get(self._url, headers=self._headers)
                if answer.status_code == 200:
                    self.gap, last = max(self.gap, time.monotonic() - last), time.monotonic()
                    self.seen.append(answer.json())
                    self.as_of.append(answer.headers.get("earshot-as-of", ""))
                else:
                    assert answer.status_code == 503, answer.text
                await asyncio.sleep(POLL_SECONDS)


def _goes_on(before: Any, after: Any) -> bool:
    """Return whether an answer has all windows of the one before, and its end; those of a job are alike."""
    if "inference" not in before:
        return bool(before == after)
    was, now = before["inference"], after["inference"]
    ended = "next_token" not in was["page"]
    return now["results"][: len(was["results"])] == was["results"] and (not ended or now == was)


async def _killed(victim: ServiceProcess, others: list[ServiceProcess]) -> list[Reader]:
    """Kill the owner of sessions and a job while others read them; return the readers, once there are new owners."""
    async with Client(victim) as client:
        ended, going, deleted = [await client.open() for _ in range(3)]
        job = await client.job(wav(tone(5.0)), {"sound_event_detection": True})
        for stream in [ended, going, deleted] * 4:
            await client.put(stream, 1)
        await client.seal(ended)
        await client.events(ended.session)
        await client.result(job)
        # A stand-by has a session once its head is logged.
        await asyncio.sleep(NOTE_SECONDS + 3)
        await client.delete(deleted.session)
    paths = [f"/audio_sessions/{one.session}/status" for one in (ended, going)] + [f"/api/v1/jobs/{job}"]
    readers = [Reader(node.url, path, node.key) for node in others for path in paths]
    tasks = [asyncio.create_task(reader.run()) for reader in readers]
    await until(lambda: all(reader.seen for reader in readers))
    victim.kill()
    await until(lambda: any(any(reader.as_of) for reader in readers))
    async with httpx2.AsyncClient(timeout=60) as http:
        for node in others:
            url = f"{node.url}/audio_sessions/"
            live = await http.get(f"{url}{ended.session}/live", headers={"Last-Event-ID": "0"})
            names = [name for name, _, _ in sse.events(live.text.splitlines())]
            assert names == ["session", "window", "window", "ended"]
            assert (await http.get(f"{url}{deleted.session}/status")).status_code in (404, 503)
    # Nobody is left who waits for the dead one.
    answers = [len(reader.seen) + 20 for reader in readers]
    await until(lambda: all(len(reader.seen) > count for reader, count in zip(readers, answers, strict=True)))
    await until(lambda: not any(reader.as_of[-1] for reader in readers))
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    return readers


async def test_sessions_and_jobs_are_read_while_their_owner_is_dead(nodes: list[ServiceProcess]) -> None:
    """Nothing that was read goes back, and nobody waits long."""
    gaps = []
    for kill in range(KILLS):
        await asyncio.to_thread(start_again, nodes)
        readers = await _killed(nodes[kill % 3], [*nodes[: kill % 3], *nodes[kill % 3 + 1 :]])
        gaps.append(max(reader.gap for reader in readers))
        answers = sum(bool(as_of) for reader in readers for as_of in reader.as_of)
        print(f"kill {kill}: longest gap {gaps[-1]:.2f} s, {answers} answers by stand-bys")
        for before, after in (pair for reader in readers for pair in pairwise(reader.seen)):
            assert _goes_on(before, after), (before, after)
    assert max(gaps) < GAP_SECONDS, gaps
