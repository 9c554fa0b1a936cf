"""Query parameters of reads."""

from datetime import date
from typing import Final
from urllib.parse import parse_qsl

import msgspec
from starlette.types import Scope

from topics.errors import BadRequest

#: No offset has more digits.
_DIGITS: Final = 15
LARGEST: Final = 10**_DIGITS - 1


class IntegerParameter(msgspec.Struct, frozen=True):
    """An integer in a query or a path, with its bounds and documentation."""

    name: str
    text: str
    #: None if the parameter is required.
    default: int | None = None
    lowest: int = 0
    highest: int = LARGEST

    def read(self, query: dict[str, str]) -> int:
        """Return its value in a query, or its default.

        Raises:
            BadRequest: not an integer, or out of bounds.
        """
        text = query.get(self.name)
        if text is None:
            assert self.default is not None
            return self.default
        return self.judge(text)

    def judge(self, text: str) -> int:
        """Parse an integer within the bounds.

        Raises:
            BadRequest: not an integer, or out of bounds; names the parameter.
        """
        value = parse_integer(self.name, text)
        if not self.lowest <= value <= self.highest:
            bounds = f"at least {self.lowest}" if self.highest == LARGEST else f"{self.lowest} to {self.highest}"
            raise BadRequest(f"{self.name}: must be {bounds}")
        return value


def query_parameters(scope: Scope, *, exact: bool = False) -> dict[str, str]:
    """Return the parameters of a query string; the last value of a repeated one.

    What is not UTF-8 comes garbled, which suffices for values that must be one of a few, or match something known.

    Raises:
        BadRequest: with `exact`, it is not UTF-8.
    """
    query = scope["query_string"].decode("latin-1")
    if "%" in query or "+" in query:
        try:
            return dict(parse_qsl(query, keep_blank_values=True, errors="strict" if exact else "replace"))
        except UnicodeDecodeError:
            raise BadRequest("the query is not UTF-8: percent-encode the UTF-8 bytes of its parameters") from None
    # Numbers and tokens need no unquoting, which costs more than the rest of a read.
    pairs = (pair.partition("=") for pair in query.split("&")) if query else ()
    return {name: value for name, _, value in pairs}


def read_date(query: dict[str, str], name: str, default: date) -> date:
    """Return a day, written YYYY-MM-DD, of a query.

    Raises:
        BadRequest: it is not a day; names the parameter.
    """
    if not (text := query.get(name)):
        return default
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = None
    if day is None or day.isoformat() != text:  # ISO 8601 has other forms.
        raise BadRequest(f"{name}: {text[:64]!r} is not a day such as 2026-11-22")
    return day


def parse_integer(name: str, text: str) -> int:
    """Parse an integer in decimal digits.

    Raises:
        BadRequest: not an integer, or too large for any use here; names the parameter.
    """
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        raise BadRequest(f"{name}: not an integer")
    if len(digits) > _DIGITS:
        raise BadRequest(f"{name}: too large")
    return int(text)
