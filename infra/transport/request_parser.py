"""uvicorn's HTTP protocol with bounds on what frames a request, and refusals of requests that cannot be served.

Framing is all input except body data: request line, headers, chunk sizes, trailers.
"""

from typing import Any, Final

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

#: Framing bytes allowed in a request, plus one for each byte of its body: a body may come in chunks of a few bytes.
FRAMING_BYTES: Final = 32 * 1024
TOO_MUCH_FRAMING: Final = 431, f"the request has more than {FRAMING_BYTES} bytes of headers"
HEADERS: Final = 100


class RequestFault(ValueError):
    """A callback of the parser raises it: the status and message with which the request is refused."""


class RequestParser(HttpToolsProtocol):
    """Parses the requests of one connection. Loop only."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        #: Bytes of the request being received, and its host headers.
        self._framing = self._body = self._hosts = 0
        #: Input after a request that asks for another protocol.
        self.early = b""
        #: The request asks for a protocol other than WebSocket, and is parsed again without that.
        self._parses_again = False

    def _fault_in(self, data: bytes) -> tuple[int, str] | None:
        """Parse input; return the status and message with which it is refused, None if it is not."""
        self._framing += len(data)
        try:
            self._parse(data)
        except httptools.HttpParserError as error:
            fault = error.__context__
            return fault.args if isinstance(fault, RequestFault) else (400, "the request is not HTTP")
        return TOO_MUCH_FRAMING if self._framing > FRAMING_BYTES + self._body else None

    def _parse(self, data: bytes) -> None:
        """Parse input; `HttpParserError` passes through."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            rest = data[upgrade.args[0] :]
            if self._parses_again:
                self._parse(self._without_upgrade() + rest)
            else:
                # Until the upgrade is accepted, this is served as any other request.
                self.early = rest

    def _without_upgrade(self) -> bytes:
        """Return the head of a request, and begin anew: the parser skips the body of a request with `Upgrade`."""
        head = self.parser.get_method(), self.url, self.parser.get_http_version().encode("ascii")
        lines = [b"%s: %s\r\n" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser, self._parses_again = httptools.HttpRequestParser(self), False
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # As uvicorn's.
        return b"%s %s HTTP/%s\r\n%s\r\n" % (*head, b"".join(lines))

    def _upgrades(self) -> bool:
        """Return whether a request asks for another protocol; if that is not WebSocket, it is parsed again."""
        method = self.parser.get_method()
        upgrades = self.parser.should_upgrade() and method != b"CONNECT"
        wanted = [value.lower() for name, value in self.headers if name == b"upgrade"] if upgrades else []
        self._parses_again = upgrades and (method != b"GET" or wanted != [b"websocket"])
        return upgrades

    def _check_head(self) -> None:
        self._check_header_size()
        if self._hosts != 1 and (self._hosts or self.parser.get_http_version() != "1.0"):
            raise RequestFault(400, "host: a request needs this header, once")

    def _check_header_size(self) -> None:
        """Refuse headers and trailers that are too large but arrived in one block, which may hold more than them."""
        if self._framing > FRAMING_BYTES < len(self.url) + sum(len(name) + len(value) for name, value in self.headers):
            raise RequestFault(*TOO_MUCH_FRAMING)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._body = self._hosts = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header or trailer as uvicorn does, and check it here: another call would double the cost."""
        if len(self.headers) >= HEADERS:
            raise RequestFault(431, f"the request has more than {HEADERS} headers")
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = self.parser.get_http_version() != "1.0"
        elif name == b"host":
            self._hosts += 1
        elif name == b"transfer-encoding" and value.strip().lower() != b"chunked":
            raise RequestFault(501, "transfer-encoding: only chunked is understood")
        self.headers.append((name, value))

    def on_body(self, body: bytes) -> None:
        self._framing -= len(body)
        self._body += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._check_header_size()
        self._framing = 0
        super().on_message_complete()
