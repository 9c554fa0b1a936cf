"""A node that is drained and started again under load: nobody who uses the service gets an error, or waits long."""

import asyncio
import base64
from collections import Counter

import httpx2
import pytest

from tests.cluster.nodes import Pair, start_again
from tests.process import ServiceProcess
from tests.recovery.load import Client, Stream, half_second
from tests.unit.app.sessions.sockets import line_at
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

STREAMS = 8
#: A balancer asks about readiness this often.
PROBE_SECONDS = 1.0


class Load:
    """Uploads and reads through a balancer, each once: nothing is repeated."""

    def __init__(self, nodes: Pair, streams: list[Stream]) -> None:
        self.nodes, self.streams = list(nodes), streams
        self.ready: list[ServiceProcess] = list(nodes)
        self.statuses: Counter[int] = Counter()
        self.times: list[float] = []
        self.ends = asyncio.Event()
        #: When it was last asked who is ready.
        self._asked = 0.0

    async def run(self) -> None:
        async with httpx2.AsyncClient(timeout=60) as http:
            await asyncio.gather(self._probe(http), *(self._stream(http, stream) for stream in self.streams))

    async def _probe(self, http: httpx2.AsyncClient) -> None:
        while not self.ends.is_set():
            await self._look(http)
            await asyncio.sleep(PROBE_SECONDS)

    async def _look(self, http: httpx2.AsyncClient) -> None:
        self._asked, ready = asyncio.get_running_loop().time(), []
        for node in self.nodes:
            try:
                if (await http.get(f"{node.url}/readyz")).status_code == 200:
                    ready.append(node)
            except httpx2.TransportError:
                pass
        self.ready = ready

    async def _stream(self, http: httpx2.AsyncClient, stream: Stream) -> None:
        while not self.ends.is_set():
            number = len(stream.chunks)
            data = half_second(1, number)
            body = {"data": base64.b64encode(data).decode()}
            put = await self._ask(http, number, "PUT", f"{stream.session}/chunks/{number}", body)
            await self._ask(http, number, "GET", f"{stream.session}/status")
            if put == 200:
                stream.chunks.append(data)
            await asyncio.sleep(0.05)

    async def _ask(self, http: httpx2.AsyncClient, turn: int, method: str, path: str, body: object = None) -> int:
        clock = asyncio.get_running_loop().time
        if clock() - self._asked > 2 * PROBE_SECONDS:  # This process is late, as no balancer is.
            await self._look(http)
        began, node = clock(), self.ready[turn % len(self.ready)]
        answer = await http.request(method, f"{node.url}/audio_sessions/{path}", json=body)
        self.times.append(clock() - began)
        self.statuses[answer.status_code] += 1
        return answer.status_code


async def test_drained_and_returning_node_costs_no_answer(nodes: Pair) -> None:
    one, two = nodes
    process = one.process
    assert process is not None
    async with Client(one) as first, Client(two) as second:
        streams = [await (first, second)[at % 2].open() for at in range(STREAMS)]
        load = Load(nodes, streams)
        running = asyncio.create_task(load.run())
        path = f"/audio_sessions/{streams[0].session}"
        async with line_at(one.url.replace("http", "ws", 1), f"{path}/socket?mode=listen", x_api_key=one.key) as line:
            assert (await line.next())["type"] == "hello"
            await until(lambda: load.statuses[200] > 8 * STREAMS)
            two.operate("POST", "/nodes/drain", json={"url": one.url})
            await until(lambda: "about to stop" in one.ask_ready())
            await first.open()
            await line.rest()
            assert await line.code() == 1001
        assert (await first.http.get(f"{path}/status")).status_code == 200, "it forwards"
        assert await asyncio.to_thread(process.wait, 90) == 0
        drained = load.times
        load.times = []
        await asyncio.to_thread(start_again, nodes)
        await until(lambda: one in load.ready)
        load.ends.set()
        await running
        print(f"drain: {len(drained)} answers, the slowest {max(drained):.2f} s")
        print(f"join: {len(load.times)} answers, the slowest {max(load.times):.2f} s")
        assert load.statuses.keys() == {200}, load.statuses
        for stream in streams:
            await second.seal(stream)
