"""The entrance: many live streams are read together, and nobody else waits."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from unittest.mock import Mock

import pytest

from app.http import turns
from app.http.turns import LoopTurns
from infra.transport import entrance
from infra.transport.entrance import COUNTED, EAGER_TICK, Entrance, Entry
from tests.waiting import turn
from topics.clock import TICK, until_tick
from topics.turns import Holder

STEP = 0.001


class House:
    """An entrance in a time of its own."""

    def __init__(self) -> None:
        self.now = 100.0
        loop_turns = LoopTurns()
        self.entrance = Entrance(lambda: loop_turns)
        self.clients: list[Client] = []

    def client(self, *, answers: bool = False) -> "Client":
        client = Client(self, answers)
        self.clients.append(client)
        return client

    async def wait(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP)):
            self.now += STEP
            await turn()

    async def busy(self, ticks: int, number: int = 40) -> list["Client"]:
        """Let as many streams send in turn, one each millisecond; return them."""
        streams = [self.client() for _ in range(number)]
        for step in range(round(ticks * TICK / STEP)):
            streams[step % number].send(b"chunk")
            await self.wait(STEP)
        return streams


class Client:
    def __init__(self, house: House, answers: bool) -> None:
        self.house = house
        self.here, self.there = socket.socketpair()
        self.here.setblocking(False)
        self.transport = Mock(is_closing=lambda: False, get_extra_info=lambda name: self.here)
        self.read: list[tuple[float, bytes]] = []
        self.is_inside = False
        self.answers = answers
        self.entry = Entry(house.entrance, self.transport, self._received, Holder("organization", "project"))
        self.entry.wait(is_inside=False)

    def _received(self, data: bytes) -> None:
        self.read.append((self.house.now, data))
        self.entry.wait(is_inside=self.is_inside)
        if self.answers:
            self.entry.answered()

    def send(self, data: bytes) -> None:
        self.there.send(data)


@pytest.fixture
def house(loop: asyncio.Runner, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    house = House()
    monkeypatch.setattr(loop.get_loop(), "time", lambda: house.now)
    monkeypatch.setattr(turns, "perf_counter", lambda: 0.0)  # All turns come at once, on a busy machine too.
    yield house
    for client in house.clients:
        client.entry.close()
        client.here.close()
        client.there.close()


def after_tick(now: float, tick: float = TICK) -> float:
    """Return how long ago the last tick was."""
    return (now + STEP / 10) % tick


@pytest.mark.parametrize("now", [0.0, 1.0, 7.019, 7.02, 7.021, 123456.78])
def test_ticks_are_multiples_of_one_time(now: float) -> None:
    left = until_tick(now)
    assert TICK / 2 <= left <= 1.5 * TICK
    assert min((now + left) % TICK, TICK - (now + left) % TICK) < 1e-6


async def test_streams_are_read_together_while_many_send(house: House) -> None:
    streams = await house.busy(ticks=5 * COUNTED)
    later = [at for stream in streams for at, _ in stream.read if at > 100 + 2 * COUNTED * TICK]
    assert len(later) > 2 * COUNTED * TICK / STEP
    assert max(map(after_tick, later)) < 2 * STEP
    assert len(set(later)) < len(later) / 10


async def test_chunks_of_a_lone_stream_are_read_at_once(house: House) -> None:
    """Also once others have stopped to send."""
    await house.busy(ticks=2 * COUNTED)
    await house.wait(TICK)
    alone = house.client()
    for _ in range(30):
        await house.wait(0.05)
        alone.send(b"chunk")
        await turn()
        assert alone.read[-1][0] == house.now


async def test_client_that_waits_for_each_answer_is_not_held(house: House) -> None:
    """It would lose a tick with each chunk."""
    streams = await house.busy(ticks=COUNTED + 1)
    waiting, late = house.client(answers=True), 0
    for number in range(100):
        streams[number % len(streams)].send(b"chunk")
        waiting.send(b"chunk")
        await turn()
        late += len(waiting.read) <= number
        while len(waiting.read) <= number:
            await house.wait(STEP)
        await house.wait(STEP)
    assert late <= 2, "it is not known at first"


async def test_many_clients_that_wait_for_answers_are_read_together_for_shorter(house: House) -> None:
    clients = [house.client(answers=True) for _ in range(20)]
    for step in range(2000):
        for client in clients[step % 2 :: 2]:
            if not client.read or client.read[-1][0] < house.now - STEP:
                client.send(b"chunk")
        await house.wait(STEP)
    later = [at for client in clients for at, _ in client.read if at > 101]
    assert max(after_tick(at, EAGER_TICK) for at in later) < 2 * STEP
    assert len(later) > 20 * 0.9 / EAGER_TICK * 0.5


async def test_rest_of_a_message_is_read_at_once(house: House) -> None:
    streams = await house.busy(ticks=COUNTED + 1)
    one = streams[0]
    one.is_inside = True
    one.send(b"begin")
    await house.wait(2 * TICK)
    for part in (b"more", b"rest"):
        one.send(part)
        await turn()
        assert one.read[-1] == (house.now, part)


async def test_many_connections_share_what_is_read_at_once(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read and waits for its turn is their project's memory."""
    monkeypatch.setattr(entrance, "GATE_BYTES", 5 * 8000)
    alone = house.client()
    alone.send(bytes(20_000))
    await house.wait(TICK)
    assert [len(data) for _, data in alone.read] == [20_000]
    several = [house.client() for _ in range(4)]
    for client in several:
        client.send(bytes(20_000))
    await house.wait(TICK)
    assert [max(len(data) for _, data in client.read) for client in several] == [8000] * 4


async def test_connection_that_fails_is_closed_alone(house: House) -> None:
    failures: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context))
    clients = [house.client() for _ in range(3)]
    clients[1].entry._received = Mock(side_effect=ValueError)
    for client in clients:
        client.send(b"chunk")
    await turn()
    assert [len(client.read) for client in clients] == [1, 0, 1]
    clients[1].transport.abort.assert_called_once_with()
    assert len(failures) == 1


@pytest.mark.parametrize("how", ["closed", "reset"])
async def test_transport_learns_of_the_end(house: House, how: str) -> None:
    client = house.client()
    if how == "reset":
        client.here.send(b"never read")  # A socket that is closed before it has read resets its peer.
    client.there.close()
    await turn()
    client.transport.resume_reading.assert_called_once_with()
    assert client.read == []


async def test_paused_connection_is_not_read(house: House) -> None:
    client = house.client()
    client.entry.pause()
    client.send(b"chunk")
    await turn()
    assert client.read == []
    client.entry.wait(is_inside=False)
    await turn()
    assert client.read == [(house.now, b"chunk")]


async def test_input_is_read_at_its_holders_turn(monkeypatch: pytest.MonkeyPatch, house: House) -> None:
    works: list[Callable[[], None]] = []
    monkeypatch.setattr(LoopTurns, "is_free", lambda turns: False)
    monkeypatch.setattr(LoopTurns, "put", lambda turns, holder, work: works.append(work))
    client = house.client()
    client.send(b"chunk")
    await turn()
    assert client.read == []
    [work] = works
    work()
    assert client.read == [(house.now, b"chunk")]
