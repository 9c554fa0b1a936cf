"""Positions in the events of a session.

The events follow the windows in order. First come the notes of the source before a window, then the window itself, then
the events of sounds that it causes. After the last window come the change of state and the ends of sounds that were
still on. A place depends only on the rows, so it means the same on every node.

As text it contains a mark of its session, so that cursors of other sessions are refused. The plain number of a window
is a cursor too: everything up to this window, including its own item.
"""

import re
from base64 import urlsafe_b64encode
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

from topics.errors import BadRequest


class Place(NamedTuple):
    """A window and an item of it, before which everything was sent; item 0 is before the window itself."""

    window: int
    item: int = 0
    #: Notes right before the window that were sent; 0 if the item is another.
    notes: int = 0


#: The cursor before the first event.
START: Final = "start"
FIRST: Final = Place(0)
_CURSOR: Final = re.compile(r"([0-9]{1,15})\.([0-9]{1,6})(?:\.([0-9]{1,9}))?\.([A-Za-z0-9_-]{4})")


@lru_cache(4096)
def mark(session: str) -> str:
    """Return the suffix of a session's cursors."""
    return urlsafe_b64encode(blake2b(session.encode(), digest_size=3, person=b"cursor").digest()).decode()


def cursor(session: str, window: int, item: int, notes: int = 0) -> str:
    return f"{window}.{item}.{f'{notes}.' if notes else ''}{mark(session)}"


def next_window(place: Place) -> int:
    """Return the first window that is not wholly before a place."""
    return place.window + 1 if place.item else place.window


def parse(name: str, session: str, text: str) -> Place:
    """Return the place of a cursor.

    Raises:
        BadRequest: it is malformed or belongs to another session; names the parameter.
    """
    if text == START:
        return FIRST
    if text.isascii() and text.isdigit() and len(text) <= 15:
        return Place(int(text), 1)
    if (found := _CURSOR.fullmatch(text)) is None:
        raise BadRequest(
            f"{name}: {text[:40]!r} is not a cursor; send `start`, a window number, or a `cursor` you received"
        )
    if found[4] != mark(session):
        raise BadRequest(f"{name}: the cursor is of another session")
    return Place(int(found[1]), int(found[2]), int(found[3] or 0))
