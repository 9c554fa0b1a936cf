"""A request to an operation: its headers, its parameters and its body."""

from collections.abc import Callable, Coroutine
from typing import Any, Final

from starlette.types import Receive, Scope

from app.http.bodies import NOBODY, BodyQuota, check_encoding, read_body
from topics.errors import BadRequest, EarshotError
from topics.turns import Holder

#: In a forwarded request, the Content-Length that the client declared: a body that is too long is not forwarded whole.
DECLARED: Final = b"x-earshot-content-length"
#: In a scope, whose request it is, once that is known.
HOLDER: Final = "earshot.holder"
#: Longest Idempotency-Key.
KEY_LENGTH: Final = 255

#: Returns once an accepted key is refused (Unauthorized), or the directory was down for too long (DirectoryDown).
KeyEnd = Callable[[], Coroutine[Any, Any, EarshotError]]


class Call:
    """A request: its ASGI scope, the source of its body, and the memory for it."""

    __slots__ = ("ended", "give_up_at", "owner", "receive", "room", "scope")

    def __init__(self, scope: Scope, receive: Receive, room: BodyQuota) -> None:
        self.scope = scope
        self.receive = receive
        self.room = room
        #: None before a key is accepted.
        self.ended: KeyEnd | None = None
        #: The node that was asked last to answer, None if this one answers.
        self.owner: str | None = None
        #: The loop's time at which it waits no longer for an owner, None if it has waited for none.
        self.give_up_at: float | None = None

    def header(self, name: bytes) -> bytes:
        """Return a header's value by its lower-case name, or b""."""
        for candidate, value in self.scope["headers"]:
            if candidate == name:
                return bytes(value)
        return b""

    @property
    def holder(self) -> Holder:
        """Whose session the request concerns, once that is known."""
        return self.scope[HOLDER]  # type: ignore[no-any-return]

    @property
    def address(self) -> str:
        """The client's address, or that of an untrusted reverse proxy; "" if it has none."""
        client = self.scope.get("client")
        return str(client[0]) if client else ""

    def path(self, parameter: str) -> str:
        return str(self.scope["path_params"][parameter])

    def idempotency_key(self) -> bytes:
        """Return the Idempotency-Key, which marks a request as a repetition of an earlier one, or b"".

        Raises:
            BadRequest: it is too long.
        """
        key = self.header(b"idempotency-key")
        if len(key) > KEY_LENGTH:
            raise BadRequest(f"Idempotency-Key: longer than {KEY_LENGTH} characters")
        return key

    async def body(self, limit: int, holder: Holder = NOBODY) -> bytes:
        """Read the body; reserve memory from the shares of its holder.

        Raises:
            UnsupportedEncoding: it is compressed.
            TooLarge: longer than `limit` bytes.
            Unavailable: no memory is left now.
            ClientGone: the client hung up before the end.
        """
        check_encoding(self.header(b"content-encoding"))
        length = self.header(DECLARED) or self.header(b"content-length")
        return await read_body(self.receive, length, limit, self.room, holder)
