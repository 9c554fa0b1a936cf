"""Page tokens: where the next page of a session begins, signed so that clients cannot forge one.

A token is offset (8 bytes) and page length (2 bytes), signed with the session id. The server keeps no state for it, and
it is valid for as long as the session.
"""

import struct
from typing import Final

from topics.errors import BadRequest
from topics.signing import Signer

_PLACE: Final = struct.Struct(">QH")


class PageTokens:
    """Issues and verifies the page tokens of one deployment."""

    def __init__(self, secret: bytes) -> None:
        self._signer = Signer(secret, b"page token")

    def issue(self, session: str, offset: int, count: int) -> str:
        """Return the token of the page of `count` windows at `offset`."""
        return self._signer.seal(_PLACE.pack(offset, count), session.encode("ascii"))

    def read(self, session: str, token: str) -> tuple[int, int]:
        """Return (offset, count) of a token of this session.

        Raises:
            BadRequest: the token is forged, damaged, or of another session.
        """
        place = self._signer.open(token, session.encode("ascii"))
        if place is None or len(place) != _PLACE.size:
            raise BadRequest("next_token: not a token of this session")
        offset, count = _PLACE.unpack(place)
        return offset, count
