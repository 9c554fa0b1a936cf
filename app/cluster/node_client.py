"""An HTTP/1.1 client for requests to other nodes.

Most of them are short reads, for which a general client takes more processor time than both nodes for all the rest.
"""

import asyncio
import ssl
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from functools import lru_cache
from typing import Any, Final, NamedTuple, cast
from urllib.parse import urlsplit

import httptools

from app.http.replies import Headers

READS: Final = frozenset({"GET", "HEAD"})
CHUNKED: Final = (b"transfer-encoding", b"chunked")
#: Longer answers are streamed.
WHOLE_BYTES: Final = 1 << 20
#: Bytes of a streamed answer that wait for its reader.
WAITING_BYTES: Final = 1 << 18
#: An unused connection is kept for so long. A node keeps it longer, so none ends while a request is on its way.
KEPT_SECONDS: Final = 15.0
#: After a connection that was not answered in time, further ones to that node fail at once for so long; then one tries.
SILENT_SECONDS: Final = 2.0


class NoConnection(Exception):
    """There is no connection to a node, so it has nothing of the request."""


class Broken(Exception):
    """A node has closed the connection, or sent something that is not HTTP."""


class BodyFailed(Exception):
    """The body of a request has raised `error`."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Request(NamedTuple):
    """A request: its method, the bytes of its path and query, its headers, and the pieces of its body, if any."""

    method: str
    target: bytes
    headers: Iterable[tuple[bytes, bytes]]
    body: AsyncIterable[bytes] | None
    #: Seconds for the node to take a piece of the body, and to send the next piece of the answer.
    take_seconds: float
    silence_seconds: float

    @property
    def is_read(self) -> bool:
        return self.method in READS


class _Address(NamedTuple):
    host: str
    port: int
    is_tls: bool
    #: What each path begins with, and the `host` header.
    prefix: bytes
    name: bytes


@lru_cache(64)
def _address(url: str) -> _Address:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is not the URL of a node")
    is_tls = parts.scheme == "https"
    port = parts.port or (443 if is_tls else 80)
    return _Address(parts.hostname, port, is_tls, parts.path.rstrip("/").encode(), parts.netloc.encode())


class Answer(asyncio.Protocol):
    """A connection to a node, and the answer to its newest request. Loop only."""

    transport: asyncio.Transport

    def __init__(self, unused: list["Answer"]) -> None:
        """Leave `unused` when the connection ends."""
        self.unused_since = 0.0
        self._unused = unused
        self._parser = httptools.HttpResponseParser(self)
        self._writable = asyncio.Event()
        self._writable.set()
        self._request: Request | None = None

    def _begin(self, request: Request) -> None:
        self._request = request
        self.status = 0
        self.headers: Headers = []
        self._pieces: list[bytes] = []
        self._size = 0
        self._length: int | None = None
        #: It has a head; something tells where it ends; its end is here; the connection can be used again.
        self._has_head = self._is_framed = self.is_complete = self._is_kept = False
        #: The node has sent something.
        self.is_begun = False
        self._failure: Exception | None = None
        self._news: asyncio.Future[None] | None = None
        self._deadline: asyncio.Timeout | None = None

    # --- the transport and the parser -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._writable.set()
        if self._request is None:
            if self in self._unused:
                self._unused.remove(self)
            return
        if exc is None and self._has_head and not self._is_framed:
            self.is_complete = True
        self._fail(Broken("the connection ended"))

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        if self._request is None:  # It ends a connection that was not used for long.
            self.transport.abort()
            return
        self.is_begun = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(Broken(repr(error)))
            self.transport.abort()
        if self._is_ready:
            self._tell()
        else:
            self._expect(self._request.silence_seconds)
        if self._size > WAITING_BYTES and not self._is_short:
            self.transport.pause_reading()

    def on_message_begin(self) -> None:
        if self.is_complete:
            raise ValueError("more than one answer")
        self.headers = []  # Those of an interim answer.

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        self.headers.append((name, value))
        if name == b"content-length":
            self._length = int(value)
        self._is_framed = self._is_framed or name in (b"content-length", b"transfer-encoding")

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self._has_head = self.status >= 200
        # The parser would wait for the body that an answer to HEAD tells of.
        self.is_complete = self._has_head and self._request is not None and self._request.method == "HEAD"

    def on_body(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._size += len(piece)

    def on_message_complete(self) -> None:
        self.is_complete = self._has_head
        self._is_kept = self._parser.should_keep_alive()

    @property
    def _is_short(self) -> bool:
        return self._length is not None and self._length <= WHOLE_BYTES

    @property
    def _is_ready(self) -> bool:
        """Whether it is complete, or has the head of an answer that is streamed."""
        return self.is_complete or (self._has_head and not self._is_short)

    def _fail(self, error: Exception) -> None:
        if not self.is_complete and self._failure is None:
            self._failure = error
        self._tell()

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def _expect(self, seconds: float | None) -> None:
        """Give the node so long from now on; None is for ever."""
        if self._deadline is not None:
            self._deadline.reschedule(None if seconds is None else asyncio.get_running_loop().time() + seconds)

    # --- one request ------------------------------------------------------------------------------------------------

    async def ask(self, name: bytes, request: Request) -> None:
        """Send a request; return once its answer is here, or the head of one that is long or of unknown length.

        Raises:
            BodyFailed: the body has.
            Broken: the node has broken off.
            TimeoutError: it takes nothing, or is silent.
        """
        self._begin(request)
        lines = [b"%b %b HTTP/1.1\r\nhost: %b" % (request.method.encode(), request.target, name)]
        lines += [b"%b: %b" % header for header in request.headers]
        head = b"\r\n".join((*lines, b"\r\n"))
        sending = None
        try:
            async with asyncio.timeout(None) as self._deadline:
                if request.body is None:
                    self.transport.write(head)
                    self._expect(request.silence_seconds)
                else:
                    sending = asyncio.create_task(self._send(head, request, request.body))
                while not self._is_ready:
                    await self._change()
        finally:
            self._deadline = None
            if sending is not None and not sending.done():
                # It has answered before it had all.
                self._is_kept = False
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)

    async def _change(self) -> None:
        """Wait until there is more of the answer."""
        if self._failure is None:
            self._news = asyncio.get_running_loop().create_future()
            await self._news
        if self._failure is not None:
            raise self._failure

    async def _send(self, head: bytes, request: Request, body: AsyncIterable[bytes]) -> None:
        """Send the head together with the first piece of the body, then the others."""
        is_chunked, rest = CHUNKED in request.headers, head
        try:
            async for piece in body:
                if piece:
                    await self._write(rest + (b"%x\r\n%b\r\n" % (len(piece), piece) if is_chunked else piece), request)
                    rest = b""
            await self._write(rest + b"0\r\n\r\n" * is_chunked, request)
            self._expect(request.silence_seconds)
        except Exception as error:
            self._fail(BodyFailed(error))

    async def _write(self, data: bytes, request: Request) -> None:
        if data and not self.transport.is_closing():
            self.transport.write(data)
        if not self._writable.is_set():
            self._expect(request.take_seconds)
            await self._writable.wait()
            self._expect(None)

    @property
    def body(self) -> bytes:
        """What has come of the body."""
        return b"".join(self._pieces)

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield the body as it arrives; raise as `ask` does."""
        assert self._request is not None
        while self._pieces or not self.is_complete:
            if self._pieces:
                piece, self._pieces, self._size = self.body, [], 0
                yield piece
            else:
                self.transport.resume_reading()
                async with asyncio.timeout(self._request.silence_seconds):
                    await self._change()

    def release(self) -> None:
        """Keep the connection for another request if it can take one."""
        if self._is_kept and not self.transport.is_closing():
            self._request = None
            self.unused_since = asyncio.get_running_loop().time()
            self._unused.append(self)
        else:
            self.close()

    def close(self) -> None:
        self.transport.abort()


class NodeClient:
    """Keeps connections to other nodes. Loop only."""

    def __init__(self, trust: ssl.SSLContext | None = None) -> None:
        """`trust` checks the certificates of nodes."""
        self._trust = trust
        self._unused: defaultdict[str, list[Answer]] = defaultdict(list)
        #: When a connection to a node was not answered, or was tried again since, until one is.
        self._silent: dict[str, float] = {}

    async def ask(self, url: str, request: Request, connect_seconds: float) -> Answer:
        """Send a request to the node at a base URL; return its answer as `Answer.ask` does.

        Release or close it. A read is repeated if the node has ended the connection meanwhile.

        Raises:
            NoConnection: the node cannot be reached, or the URL cannot be used.
            ssl.SSLCertVerificationError: its certificate is not trusted.
            BodyFailed, Broken, TimeoutError: as `Answer.ask`.
        """
        try:
            address = _address(url)
        except ValueError as error:
            raise NoConnection(str(error)) from error
        request = request._replace(target=address.prefix + request.target)
        while True:
            kept = self._kept(url)
            answer = kept or await self._connect(url, address, connect_seconds)
            try:
                await answer.ask(address.name, request)
            except BaseException as error:
                answer.close()
                if kept is None or answer.is_begun or not request.is_read or not isinstance(error, Broken):
                    raise
            else:
                return answer

    def _kept(self, url: str) -> Answer | None:
        unused, now = self._unused[url], asyncio.get_running_loop().time()
        while unused:
            answer = unused.pop()
            if now - answer.unused_since < KEPT_SECONDS and not answer.transport.is_closing():
                return answer
            answer.close()
        return None

    async def _connect(self, url: str, address: _Address, seconds: float) -> Answer:
        tls: dict[str, Any] = {"ssl": self._trust or True} if address.is_tls else {}
        loop, unused = asyncio.get_running_loop(), self._unused[url]
        if (since := self._silent.get(url)) is not None:
            if loop.time() - since < SILENT_SECONDS:
                raise NoConnection("it was silent a moment ago")
            self._silent[url] = loop.time()
        try:
            async with asyncio.timeout(seconds):
                made = await loop.create_connection(lambda: Answer(unused), address.host, address.port, **tls)
        except ssl.SSLCertVerificationError:
            raise
        except (OSError, ValueError) as error:  # A host that is no name is a ValueError.
            if isinstance(error, TimeoutError):
                self._silent[url] = loop.time()
            raise NoConnection(str(error)) from error
        self._silent.pop(url, None)
        return made[1]

    async def close(self) -> None:
        """Close the unused connections."""
        for unused in self._unused.values():
            for answer in unused:
                answer.close()
        await asyncio.sleep(0)  # Their transports end in the next turn of the loop.
