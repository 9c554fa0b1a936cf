"""Page tokens: where the next page of a session begins, signed so that none can be made up.

A token is base64url of offset (8 bytes) | page length (2 bytes) | the first 14 bytes of keyed BLAKE2b over session id,
offset and length. It carries no state of the server and stays good for as long as the session does.
"""

from __future__ import annotations

import re
import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2b
from hmac import compare_digest
from typing import Final

from topics.errors import BadRequest

_PLACE: Final = struct.Struct(">QH")
_MAC_BYTES: Final = 14
_FORM: Final = re.compile(r"[A-Za-z0-9_-]{32}")


class PageTokens:
    """Issues and reads the page tokens of one deployment."""

    def __init__(self, secret: bytes) -> None:
        if not 16 <= len(secret) <= 64:
            raise ValueError(f"the token secret has {len(secret)} bytes, it needs 16 to 64")
        self._keyed = blake2b(key=secret, digest_size=_MAC_BYTES, person=b"page token")

    def issue(self, session: str, offset: int, count: int) -> str:
        """Return the token of the page of `count` windows at `offset`."""
        place = _PLACE.pack(offset, count)
        return urlsafe_b64encode(place + self._sign(session, place)).decode("ascii")

    def read(self, session: str, token: str) -> tuple[int, int]:
        """Return (offset, count) of a token of this session.

        Raises:
            BadRequest: forged, damaged, or of another session.
        """
        raw = urlsafe_b64decode(token) if _FORM.fullmatch(token) else b""
        place = raw[: _PLACE.size]
        if not raw or not compare_digest(raw[_PLACE.size :], self._sign(session, place)):
            raise BadRequest("next_token: not a token of this session")
        offset, count = _PLACE.unpack(place)
        return offset, count

    def _sign(self, session: str, place: bytes) -> bytes:
        mac = self._keyed.copy()
        mac.update(session.encode("ascii") + place)
        return mac.digest()
