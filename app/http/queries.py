"""Query strings: the few parameters that reads take."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl

from starlette.types import Scope

from topics.errors import BadRequest

#: Integers of more digits than this are no offset of anything.
_DIGITS: Final = 15


def query_parameters(scope: Scope) -> dict[str, str]:
    """Return the parameters of a query string; of a repeated one, the last."""
    query = scope["query_string"].decode("latin-1")
    if "%" in query or "+" in query:
        return dict(parse_qsl(query, keep_blank_values=True))
    # Numbers and tokens need no unquoting, which costs more than the rest of a read.
    pairs = (pair.partition("=") for pair in query.split("&")) if query else ()
    return {name: value for name, _, value in pairs}


def integer_parameter(query: dict[str, str], name: str, default: int, lowest: int, highest: int | None = None) -> int:
    """Return an integer parameter.

    Raises:
        BadRequest: not an integer, or out of bounds.
    """
    text = query.get(name)
    if text is None:
        return default
    value = parse_integer(name, text)
    if value < lowest or (highest is not None and value > highest):
        bounds = f"at least {lowest}" if highest is None else f"{lowest} to {highest}"
        raise BadRequest(f"{name}: must be {bounds}")
    return value


def parse_integer(name: str, text: str) -> int:
    """Return the integer that `text` writes in decimal digits.

    Raises:
        BadRequest: it writes none, or one too large for anything here; names the parameter.
    """
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        raise BadRequest(f"{name}: not an integer")
    if len(digits) > _DIGITS:
        raise BadRequest(f"{name}: too large")
    return int(text)
