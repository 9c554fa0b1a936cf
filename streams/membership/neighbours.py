"""Notices that the process of another node has died, seconds before its session ends.

A refused connection proves nothing: a node may have no endpoints, a firewall, or another address than it says. So each
node holds a connection to each other node, which has named its process on it. This node becomes a witness of a death if
the other side ends the connection, and then refuses a new one or answers as another process. A witness acts if another
one agrees, or if there are only two nodes. Silence proves nothing: when a process is paused or the network is cut, the
session timeout decides.
"""

from __future__ import annotations

import asyncio
import http.client
import io
import math
import secrets
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from streams.membership.seal import DEATH, Seal
from topics.ports.health import PROCESS, WITNESS

#: Seconds for which the end of a connection counts.
PROOF_SECONDS: Final = 3.0
#: Seconds that a node has to answer.
ANSWER_SECONDS: Final = 1.0
#: Seconds between tries to reach a node that has just ended its connection, and any other.
PAUSE_SECONDS: Final = 0.1
UNREACHED_SECONDS: Final = 2.0
#: A connection is made anew after this time: servers end those that are idle for longer.
FRESH_SECONDS: Final = 45.0

#: Host and port.
Address = tuple[str, int]


class Peer(msgspec.Struct, frozen=True, array_like=True):
    """A node in the group: its member id, its URL, and the id and number of its process."""

    id: str
    url: str
    run: str
    pid: int


class Line:
    """A connection on which a node has named its process. Loop only."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        #: Where it leads, if that is known.
        self.address: Address | None = (writer.get_extra_info("peername") or ())[:2] or None
        self.process = self.testimony = ""

    @classmethod
    async def open(
        cls, url: str, address: Address | None = None, question: str = "", trust: ssl.SSLContext | None = None
    ) -> Line:
        """Connect to a node, at an `address` if given, and ask for its process and for its answer to a witness.

        `trust` checks the certificates of nodes with TLS, by default with the system's authorities.

        Raises:
            ConnectionRefusedError: no process listens there.
            one of SILENT: it does not answer as a node does.
        """
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        host, port = address or (parts.hostname, parts.port or (443 if secure else 80))
        async with asyncio.timeout(ANSWER_SECONDS):
            streams = await asyncio.open_connection(
                host, port, ssl=(trust or True) if secure else None, server_hostname=parts.hostname if secure else None
            )
            line = cls(*streams)
            try:
                await line._ask(f"{parts.path.rstrip('/')}/healthz", parts.netloc, question)
            except BaseException:
                line.close()
                raise
        return line

    async def _ask(self, path: str, host: str, question: str) -> None:
        self._writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n{WITNESS}: {question}\r\n\r\n".encode())
        head = io.BytesIO(await self._reader.readuntil(b"\r\n\r\n"))
        head.readline()
        headers = http.client.parse_headers(head)
        await self._reader.readexactly(int(headers["content-length"] or ""))
        self.process, self.testimony = headers[PROCESS] or "", headers[WITNESS] or ""

    async def ended(self) -> bool:
        """Wait until the connection ends; return whether the other side has ended it."""
        try:
            while await self._reader.read(1024):
                pass
        except ConnectionResetError:
            return True
        except OSError:
            return False
        return True

    def close(self) -> None:
        self._writer.close()


#: What `Line.open` raises if nobody answers; it is no proof.
SILENT: Final = (OSError, EOFError, ValueError, asyncio.LimitOverrunError, http.client.HTTPException)


class Watch:
    """What this node has seen of another node's process. Loop only."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.task: asyncio.Task[None] | None = None
        #: Loop time at which the process ended its connection.
        self.ended = -math.inf
        #: Whether it has refused a connection, or was replaced, since it was last reached.
        self.is_gone = False

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        self.stop()
        self.task = asyncio.create_task(work, name=f"neighbour at {self.peer.url}")

    def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()

    @property
    def has_ended(self) -> bool:
        return asyncio.get_running_loop().time() - self.ended < PROOF_SECONDS

    @property
    def looks_dead(self) -> bool:
        return self.is_gone and self.has_ended


class Neighbours:
    """Watches the processes of the other nodes, and has those that died removed from the group. Loop only."""

    def __init__(self, run: str, seal: Seal, remove: Callable[[Peer, str], Awaitable[bool]]) -> None:
        """Watch on behalf of the process `run`.

        `remove` has the broker remove a node, for a reason to log; it returns False if it must be called again.
        """
        #: Whom to trust among nodes with TLS.
        self.trust: ssl.SSLContext | None = None
        self._run = run
        self._seal = seal
        self._remove = remove
        #: By process.
        self._watches: dict[str, Watch] = {}
        #: Whether this process is about to close its port, so that others take it for dead.
        self.stopped = False

    def follow(self, peers: Iterable[Peer]) -> None:
        """Watch these nodes from now on, without this one, and no others."""
        others = {peer.run: peer for peer in peers if peer.run != self._run and not self.stopped}
        for run in self._watches.keys() - others.keys():
            self._watches.pop(run).stop()
        for run, peer in others.items():
            watch = self._watches.setdefault(run, Watch(peer))
            # A process that survived its removal has another member id.
            watch.peer = peer
            if watch.task is None or watch.task.done():
                watch.start(self._keep(watch))

    def stop(self) -> None:
        self.stopped = True
        self.follow(())

    def note_death(self, url: str, pid: int) -> None:
        """Have the node at a URL removed if it is this process, which has died for certain."""
        for watch in self._watches.values():
            if (watch.peer.url, watch.peer.pid) == (url, pid):
                watch.start(self._remove_dead(watch, "its supervisor has seen its end"))

    def testify(self, question: bytes) -> bytes:
        """Return the signed answer that the process in another witness's question is dead, b"" if it may live."""
        watch = self._watches.get(question.rpartition(b" ")[2].decode("latin-1"))
        return self._seal.put(DEATH, question).hex().encode() if watch is not None and watch.looks_dead else b""

    async def _keep(self, watch: Watch) -> None:
        """Return once the process is dead and removed."""
        address: Address | None = None
        while True:
            if not watch.has_ended:
                address = None  # Its name may lead elsewhere by now.
            try:
                line = await Line.open(watch.peer.url, address, trust=self.trust)
            except ConnectionRefusedError:
                watch.is_gone = True
            except SILENT:
                pass
            else:
                if line.process == watch.peer.run:
                    address = line.address
                    await self._hold(watch, line)
                    continue
                line.close()
                watch.is_gone = watch.is_gone or bool(line.process)
            if watch.looks_dead and await self._is_confirmed(watch):
                await self._remove_dead(watch, "it has ended its connections, and listens no more")
                return
            await asyncio.sleep(PAUSE_SECONDS if watch.has_ended else UNREACHED_SECONDS)

    async def _hold(self, watch: Watch, line: Line) -> None:
        """Return once the connection has ended, or is to be made anew."""
        watch.ended, watch.is_gone = -math.inf, False
        try:
            async with asyncio.timeout(FRESH_SECONDS):
                if await line.ended():
                    watch.ended = asyncio.get_running_loop().time()
        except TimeoutError:
            pass
        finally:
            line.close()

    async def _is_confirmed(self, watch: Watch) -> bool:
        """Return whether another node agrees that a process is dead, or there is none that could."""
        others = [other for other in self._watches.values() if other is not watch]
        return not others or any(await asyncio.gather(*(self._agrees(other, watch) for other in others)))

    async def _agrees(self, other: Watch, dead: Watch) -> bool:
        question = f"{secrets.token_hex(16)} {dead.peer.run}"
        try:
            line = await Line.open(other.peer.url, question=question, trust=self.trust)
            line.close()
            return self._seal.take(DEATH, bytes.fromhex(line.testimony)) == question.encode()
        except SILENT:
            return False

    async def _remove_dead(self, watch: Watch, reason: str) -> None:
        while not await self._remove(watch.peer, reason):  # noqa: ASYNC110 (the broker has no event)
            await asyncio.sleep(PAUSE_SECONDS)
