"""One request on its way through an operation."""

from __future__ import annotations

from starlette.types import Receive, Scope

from app.http.bodies import read_body


class Call:
    """A request: its ASGI scope, and where its body comes from."""

    __slots__ = ("receive", "scope")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope = scope
        self.receive = receive

    def header(self, name: bytes) -> bytes:
        """Return a header's value by its lower-case name, b"" when absent."""
        for candidate, value in self.scope["headers"]:
            if candidate == name:
                return bytes(value)
        return b""

    def path(self, parameter: str) -> str:
        """Return a parameter of the route's path."""
        return str(self.scope["path_params"][parameter])

    async def body(self, limit: int) -> bytes:
        """Read the body.

        Raises:
            TooLarge: longer than `limit` bytes.
            ClientGone: the client hung up in the middle.
        """
        return await read_body(self.receive, self.header(b"content-length"), limit)
