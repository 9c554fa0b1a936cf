"""When the end of a connection proves that the process of another node has died."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from streams.membership import neighbours as module
from streams.membership.neighbours import Neighbours, Peer
from streams.membership.seal import DEATH, Seal
from tests.waiting import until

SECRET = b"of the deployment"
#: Longer than all pauses of a watch that is to act.
LONG = 0.4


class Node:
    """A node on a port of this machine: it names its process, and testifies by its own watch."""

    def __init__(self, name: str, secret: bytes = SECRET) -> None:
        self.name = name
        self.neighbours = Neighbours(name, Seal(secret), self._remove)
        self.removed: list[str] = []
        #: Whether the broker answers.
        self.answers = True
        #: Whether this node answers.
        self.silent = False
        self.url = ""
        self.successor: Node | None = None
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        #: The connections on which it has answered.
        self._answered: set[asyncio.StreamWriter] = set()

    async def _remove(self, peer: Peer, reason: str) -> bool:
        if self.answers:
            self.removed.append(peer.id)
        return self.answers

    async def serve(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", port)
        self.url = f"http://127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                request = (await reader.readuntil(b"\r\n\r\n")).decode()
                assert request.startswith("GET /healthz HTTP/1.1\r\n")
                if self.silent:
                    continue
                question = request.partition("earshot-witness: ")[2].partition("\r\n")[0]
                said = self.neighbours.testify(question.encode()).decode() if question else ""
                head = f"HTTP/1.1 200 OK\r\nEarshot-Process: {self.name}\r\nEarshot-Witness: {said}\r\n"
                writer.write(f"{head}Content-Length: 2\r\n\r\n{{}}".encode())
                self._answered.add(writer)
        self._writers.discard(writer)
        self._answered.discard(writer)
        writer.close()

    def peer(self, member: str = "") -> Peer:
        return Peer(member or f"member {self.name}", self.url, self.name, 7)

    @property
    def connections(self) -> int:
        return len(self._answered)

    def end_connections(self) -> None:
        for writer in self._writers:
            writer.close()
        self._writers.clear()

    def die(self) -> None:
        """Do what the system does when a process dies."""
        if self._server is not None:
            self._server.close()
        self.end_connections()
        if self.successor is not None:
            self.successor.die()

    async def replace(self, name: str) -> "Node":
        """Die, and have another process at the same port."""
        port = self.port
        self.neighbours.stop()
        self.die()
        self.successor = Node(name)
        await self.successor.serve(port)
        return self.successor


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(module, "UNREACHED_SECONDS", 0.02)
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(module, "PROOF_SECONDS", 60.0)  # A busy machine may take long to look again.


@asynccontextmanager
async def serving(*names: str) -> AsyncIterator[list[Node]]:
    """Yield nodes, of which the first watches the others."""
    nodes = [Node(name) for name in names]
    try:
        for node in nodes:
            await node.serve()
        nodes[0].neighbours.follow([node.peer() for node in nodes])
        await until(lambda: all(node.connections for node in nodes[1:]))
        yield nodes
    finally:
        for node in nodes:
            node.neighbours.stop()
            node.die()
        await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})


@asynccontextmanager
async def three() -> AsyncIterator[list[Node]]:
    """Yield three nodes that watch each other."""
    async with serving("a", "b", "c") as nodes:
        for node in nodes:
            node.neighbours.follow([other.peer() for other in nodes])
        await until(lambda: all(node.connections == 2 for node in nodes))
        yield nodes


async def test_two_witnesses_remove_dead_node() -> None:
    async with three() as (one, two, dead):
        dead.neighbours.stop()
        dead.die()
        await until(lambda: one.removed == two.removed == ["member c"])
        await asyncio.sleep(LONG)
        assert one.removed == two.removed == ["member c"], "each says so once"


async def test_one_witness_of_three_nodes_does_nothing() -> None:
    """The other one still reaches it, as if a firewall stood between two machines."""
    async with three() as (one, two, other):
        two.neighbours._watches["c"].stop()
        other.neighbours.stop()
        other.die()
        await until(lambda: one.neighbours._watches["c"].looks_dead)
        await asyncio.sleep(LONG)
        assert (one.removed, two.removed) == ([], [])


async def test_witness_of_two_nodes_needs_no_other() -> None:
    async with serving("a", "b") as (one, dead):
        dead.die()
        await until(lambda: one.removed == ["member b"])


async def test_refusal_without_an_earlier_connection_proves_nothing() -> None:
    async with serving("a") as (one,):
        other = Node("b")
        await other.serve()
        other.die()
        one.neighbours.follow([other.peer()])
        await until(lambda: one.neighbours._watches["b"].is_gone)
        await asyncio.sleep(LONG)
        assert not one.removed


async def test_refusal_long_after_the_end_of_a_connection_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PROOF_SECONDS", 0.1)
    async with serving("a", "b") as (one, other):
        other.silent = True
        other.end_connections()
        await asyncio.sleep(LONG)
        other.die()
        await until(lambda: one.neighbours._watches["b"].is_gone)
        await asyncio.sleep(LONG)
        assert not one.removed


@pytest.mark.parametrize("cut", [True, False], ids=["its connections end", "they stand"])
async def test_silence_proves_nothing(cut: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a paused process, also if a proxy ends its connections."""
    async with three() as (one, two, paused):
        monkeypatch.setattr(module, "FRESH_SECONDS", 0.1)
        paused.silent = True
        if cut:
            paused.end_connections()
        await asyncio.sleep(2 * LONG)
        assert (one.removed, two.removed) == ([], [])


async def test_process_that_ends_its_connections_but_answers_lives() -> None:
    async with three() as (one, two, other):
        for _ in range(3):
            other.end_connections()
            await until(lambda: other.connections == 2)
        assert (one.removed, two.removed) == ([], [])
        assert not one.neighbours._watches["c"].has_ended


async def test_process_that_was_replaced_is_removed_by_its_own_member_id() -> None:
    async with three() as (one, two, dead):
        successor = await dead.replace("d")
        await until(lambda: one.removed == two.removed == ["member c"])
        for node in (one, two):
            node.neighbours.follow([one.peer(), two.peer(), successor.peer()])
        await until(lambda: successor.connections == 2)
        await asyncio.sleep(LONG)
        assert one.removed == two.removed == ["member c"]


async def test_answer_that_names_no_process_proves_nothing() -> None:
    """It may be of a process that is about to end, or of another program."""
    async with serving("a", "b") as (one, other):
        other.name = ""
        other.end_connections()
        await asyncio.sleep(LONG)
        assert not one.removed


async def test_removal_is_repeated_until_the_broker_answers() -> None:
    async with serving("a", "b") as (one, dead):
        one.answers = False
        dead.die()
        await asyncio.sleep(LONG)
        assert not one.removed
        one.answers = True
        await until(lambda: one.removed == ["member b"])


async def test_process_that_survived_its_removal_is_watched_again() -> None:
    async with serving("a", "b") as (one, other):
        port = other.port
        other.die()
        await until(lambda: one.removed == ["member b"])
        await other.serve(port)
        one.neighbours.follow([other.peer("another member")])
        await until(lambda: other.connections)
        other.die()
        await until(lambda: one.removed == ["member b", "another member"])


async def test_supervisor_knows_without_a_connection() -> None:
    async with three() as (one, _, dead):
        for url, pid in ((dead.url, 8), ("http://elsewhere", 7)):
            one.neighbours.note_death(url, pid)
            await asyncio.sleep(0)
            assert not one.removed
        one.neighbours.note_death(dead.url, 7)
        await until(lambda: one.removed == ["member c"])


# --- testimony ------------------------------------------------------------------------------------------------------


async def test_testimony_is_signed_with_the_question() -> None:
    async with three() as (one, two, dead):
        assert one.neighbours.testify(b"nonce c") == one.neighbours.testify(b"nonce unknown") == b""
        two.neighbours.stop()
        dead.die()
        await until(lambda: one.neighbours._watches["c"].looks_dead)
        said = bytes.fromhex(one.neighbours.testify(b"nonce c").decode())
        assert Seal(SECRET).take(DEATH, said) == b"nonce c"


@pytest.mark.parametrize("forged", ["", "00", "no hex", "ab" * 100])
async def test_forged_and_old_testimony_is_ignored(forged: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with three() as (one, two, dead):
        old = Seal(SECRET).put(DEATH, b"nonce c").hex()
        monkeypatch.setattr(two.neighbours, "testify", lambda question: (forged or old).encode())
        two.neighbours._watches["c"].stop()
        dead.neighbours.stop()
        dead.die()
        await until(lambda: one.neighbours._watches["c"].looks_dead)
        await asyncio.sleep(LONG)
        assert not one.removed
