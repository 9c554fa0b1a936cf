"""Cursors of lists: the query and the position, signed so that clients cannot forge one.

A cursor is the query as msgpack, signed with the list's name and the project. The server keeps no state for it.
"""

from typing import Final

import msgspec

from topics.errors import BadRequest
from topics.ports.lists import ListQuery
from topics.signing import Signer

#: States, since, until, count, and the time and id of the last entry; the project is only in the signature.
_Place = tuple[tuple[str, ...], int, int, int, int, str]
_decoder: Final = msgspec.msgpack.Decoder(_Place)


class ListCursors:
    """Issues and verifies the cursors of one deployment."""

    def __init__(self, secret: bytes) -> None:
        self._signer = Signer(secret, b"list cursor")

    def issue(self, name: str, query: ListQuery, after: tuple[int, str]) -> str:
        """Return the cursor of the page that begins after this (time in ms, id)."""
        place: _Place = (query.states, query.since_ms, query.until_ms, query.count, *after)
        body = msgspec.msgpack.encode(place)
        body += b" " * self._signer.padding(len(body))  # No id ends in a space.
        return self._signer.seal(body, _context(name, query.project))

    def read(self, name: str, project: str, cursor: str) -> ListQuery:
        """Return the query that a cursor continues.

        Raises:
            BadRequest: the cursor is forged, damaged, or of another list.
        """
        body = self._signer.open(cursor, _context(name, project))
        if body is None:
            raise BadRequest("next_token: not a token of this list")
        states, since_ms, until_ms, count, time_ms, id = _decoder.decode(body.rstrip(b" "))
        return ListQuery(project, states, since_ms, until_ms, (time_ms, id), count)


def _context(name: str, project: str) -> bytes:
    return b"%s\0%s\0" % (name.encode(), project.encode())
