"""Hands a connection over to another lane of this machine: its descriptor, with the input that was read already.

A connection goes to the lane that owns the session or job which its next request names. Most have the requests of one
session, and go once; that of a reverse proxy goes to and fro, which costs less than forwarding. What cannot be handed
over is forwarded, as between nodes.
"""

from __future__ import annotations

import array
import asyncio
import mmap
import os
import re
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import structlog
import uvicorn
from starlette.types import Scope

from topics.keys import ID_LENGTH

log = structlog.get_logger(__name__)

#: A request line that names a session or job.
_NAMES: Final = re.compile(
    rb"[A-Z]+ (?:/sense/api/v1|/api/v1)?/(?:audio_sessions|jobs)/([0-9A-Za-z]{%d})[/? ]" % ID_LENGTH
)
#: Input in the message itself; more is in a file without a name.
INLINE_BYTES: Final = 64 * 1024
_IN_FILE: Final = b"f"
_INLINE: Final = b"i"
_MESSAGE: Final = b"m"
#: Longest wait for a lane that starts again, in seconds; clients give up earlier, and try again.
COMING_SECONDS: Final = 30.0
#: Seconds between two looks at the state of a lane that starts again.
POLL_SECONDS: Final = 0.02
#: Seconds until a message that found no room is sent again.
AGAIN_SECONDS: Final = 0.1


class LaneStates:
    """The state of each lane: one byte each, in memory that the supervisor writes and the lanes read."""

    STARTING: Final = 0
    SERVING: Final = 1
    #: It ends again and again.
    FAILED: Final = 2
    #: An operator restarts it: what is for it waits a moment.
    RESTARTING: Final = 3
    COMING: Final = (STARTING, RESTARTING)

    def __init__(self, descriptor: int, count: int) -> None:
        self._bytes = mmap.mmap(descriptor, count)

    def __getitem__(self, lane: int) -> int:
        return self._bytes[lane]

    def __setitem__(self, lane: int, state: int) -> None:
        self._bytes[lane] = state

    def lanes(self, state: int) -> list[int]:
        """Return the lanes in a state."""
        return [lane for lane, one in enumerate(self._bytes[:]) if one == state]


class Lanes:
    """The other lanes of a machine, as the connections of one lane see them. Loop only."""

    def __init__(
        self,
        number: int,
        urls: Sequence[str],
        owner: Callable[[str], str | None],
        outboxes: Sequence[socket.socket],
        inbox: socket.socket,
        states: LaneStates,
    ) -> None:
        """Prepare to hand over for lane `number`; `owner` returns the URL of an id's owner, None if it is this lane.

        `outboxes` lead to the lanes that `urls` name, `inbox` has what they send here.
        """
        self._number = number
        self._lanes = {url: lane for lane, url in enumerate(urls)}
        self._owner = owner
        self._outboxes = outboxes
        self._inbox = inbox
        self.states = states
        #: Connections given to other lanes, and taken from them.
        self.given = self.taken = 0
        self._arriving: set[asyncio.Task[object]] = set()

    def named(self, data: bytes) -> int | None:
        """Return the lane that owns what a request names, by its first bytes; None if it is this one or unknown."""
        match = _NAMES.match(data)
        return None if match is None else self.at(self._owner(match[1].decode("ascii")))

    def at(self, url: str | None) -> int | None:
        """Return the lane at a URL if it can take connections, None otherwise."""
        lane = None if url is None else self._lanes.get(url)
        return lane if lane is not None and self.states[lane] == LaneStates.SERVING else None

    async def serving(self, url: str) -> int | None:
        """Return the lane at a URL, as `at` does; wait a moment for one that starts again."""
        lane, loop = self._lanes.get(url), asyncio.get_running_loop()
        give_up = loop.time() + COMING_SECONDS
        while lane is not None and self.states[lane] in LaneStates.COMING and loop.time() < give_up:  # noqa: ASYNC110
            await asyncio.sleep(POLL_SECONDS)
        return self.at(url)

    def give(self, lane: int, transport: asyncio.Transport, data: bytes) -> bool:
        """Send a connection and its input to a lane; return False if that is impossible now.

        The caller lets go of the transport then: nothing more is read from it or written to it.
        """
        ours = transport.get_extra_info("socket")
        if ours is None or transport.is_closing() or transport.get_write_buffer_size():
            return False
        descriptors = [ours.fileno()]
        try:
            if len(data) > INLINE_BYTES:
                with open(os.memfd_create("input", os.MFD_CLOEXEC), "wb") as file:
                    file.write(data)
                    file.flush()
                    _send(self._outboxes[lane], [_IN_FILE], [*descriptors, file.fileno()])
            else:
                _send(self._outboxes[lane], [_INLINE, data], descriptors)
        except OSError as error:  # Its inbox is full, or this process may open no more files.
            log.info("connection.not_given", lane=lane, error=error.strerror)
            return False
        self.given += 1
        return True

    def tell(self, message: bytes) -> None:
        """Send a message to all other lanes."""
        for lane in range(len(self._outboxes)):
            if lane != self._number:
                self._tell(lane, message)

    def _tell(self, lane: int, message: bytes) -> None:
        if self.states[lane] == LaneStates.FAILED:
            return
        try:
            self._outboxes[lane].send(_MESSAGE + message, socket.MSG_DONTWAIT)
        except OSError:  # Its inbox is full.
            asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._tell, lane, message)

    def take(self, make: Callable[[bytes], Any], hear: Callable[[bytes], None]) -> None:
        """Serve the connections that other lanes send, each by the protocol that `make` returns for its input.

        The protocol's `begin` is called once it is connected, if there is input. `hear` takes their messages.
        """
        self._inbox.setblocking(False)
        asyncio.get_running_loop().add_reader(self._inbox, self._read, make, hear)

    def _read(self, make: Callable[[bytes], Any], hear: Callable[[bytes], None]) -> None:
        with suppress(BlockingIOError):
            data, descriptors, _, _ = socket.recv_fds(self._inbox, 1 + INLINE_BYTES, 2)
            if data[:1] == _MESSAGE:
                hear(data[1:])
                return
            connection = socket.socket(fileno=descriptors[0])
            connection.setblocking(False)
            kind, data = data[:1], data[1:]
            if kind == _IN_FILE:
                with open(descriptors[1], "rb") as file:
                    file.seek(0)
                    data = file.read()
            self.taken += 1
            loop = asyncio.get_running_loop()
            arriving = loop.create_task(self._serve(connection, make, data), name="connection of another lane")
            self._arriving.add(arriving)
            arriving.add_done_callback(self._arriving.discard)

    async def _serve(self, connection: socket.socket, make: Callable[[bytes], Any], data: bytes) -> None:
        try:
            _, protocol = await asyncio.get_running_loop().connect_accepted_socket(lambda: make(data), connection)
            if data:
                protocol.begin()
        except OSError as error:  # The client has hung up.
            log.debug("connection.gone", error=error.strerror)
            connection.close()

    def leave(self, server: uvicorn.Server) -> None:
        """Stop listening; connections that wait to be accepted go to other lanes, as closing would reset them."""
        waiting = [one.dup() for listening in server.servers for one in listening.sockets]
        for listening in server.servers:
            listening.close()
        for listener in waiting:
            listener.setblocking(False)
            with listener, suppress(BlockingIOError):
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        self._pass_on(connection)

    def _pass_on(self, connection: socket.socket) -> None:
        for lane in self.states.lanes(LaneStates.SERVING):
            if lane != self._number:
                with suppress(OSError):
                    _send(self._outboxes[lane], [_INLINE], [connection.fileno()])
                    return

    def stop(self) -> None:
        asyncio.get_running_loop().remove_reader(self._inbox)


def _send(outbox: socket.socket, message: list[bytes], descriptors: list[int]) -> None:
    """Send a message and copies of descriptors.

    `socket.send_fds` ignores its flags in Python 3.11, and two lanes whose inboxes are full would wait for each other.

    Raises:
        BlockingIOError: the inbox is full.
    """
    copies = array.array("i", descriptors)
    outbox.sendmsg(message, [(socket.SOL_SOCKET, socket.SCM_RIGHTS, copies)], socket.MSG_DONTWAIT)


def head_of(scope: Scope) -> bytes:
    """Return the head of a request as it was sent, but for the case of its headers' names."""
    query = scope["query_string"]
    target = scope["raw_path"] + (b"?" + query if query else b"")
    first = b"%s %s HTTP/%s" % (scope["method"].encode(), target, scope["http_version"].encode())
    return b"\r\n".join((first, *(b"%s: %s" % header for header in scope["headers"]), b"", b""))
