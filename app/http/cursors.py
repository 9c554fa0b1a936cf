"""Cursors of lists: what was asked for and how far it was given, signed so that none can be made up.

A cursor is base64url of the query as msgpack, and of the first 14 bytes of keyed BLAKE2b over the list's name, the
project and that. It carries no state of the server.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2b
from hmac import compare_digest
from typing import Final

import msgspec

from topics.errors import BadRequest
from topics.ports.lists import ListQuery

_MAC_BYTES: Final = 14
_FORM: Final = re.compile(r"(?:[A-Za-z0-9_-]{4}){8,96}")
#: States, since, until, count, and the time and id of the last entry; the project is in the signature alone.
_Place = tuple[tuple[str, ...], int, int, int, int, str]
_decoder: Final = msgspec.msgpack.Decoder(_Place)


class ListCursors:
    """Issues and reads the cursors of one deployment."""

    def __init__(self, secret: bytes) -> None:
        """Sign with a secret of 16 to 64 bytes."""
        self._keyed = blake2b(key=secret, digest_size=_MAC_BYTES, person=b"list cursor")

    def issue(self, name: str, query: ListQuery, after: tuple[int, str]) -> str:
        """Return the cursor of the page of a list that begins after this (time in ms, id)."""
        place: _Place = (query.states, query.since_ms, query.until_ms, query.count, *after)
        body = msgspec.msgpack.encode(place)
        body += b" " * (-(len(body) + _MAC_BYTES) % 3)  # Base64 then needs no padding; the id ends in no space.
        return urlsafe_b64encode(body + self._sign(name, query.project, body)).decode("ascii")

    def read(self, name: str, project: str, cursor: str) -> ListQuery:
        """Return the query that a cursor goes on with.

        Raises:
            BadRequest: forged, damaged, or of another list.
        """
        raw = urlsafe_b64decode(cursor) if _FORM.fullmatch(cursor) else b""
        body, mac = raw[:-_MAC_BYTES], raw[-_MAC_BYTES:]
        if not raw or not compare_digest(mac, self._sign(name, project, body)):
            raise BadRequest("next_token: not a token of this list")
        states, since_ms, until_ms, count, time_ms, id = _decoder.decode(body.rstrip(b" "))
        return ListQuery(project, states, since_ms, until_ms, (time_ms, id), count)

    def _sign(self, name: str, project: str, body: bytes) -> bytes:
        mac = self._keyed.copy()
        mac.update(b"%s\0%s\0%s" % (name.encode(), project.encode(), body))
        return mac.digest()
