"""Reads event streams."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

#: Its type, id and data.
Event = tuple[str, str, Any]


def events(lines: Iterable[str]) -> Iterator[Event]:
    """Yield the events of a stream's lines."""
    name = number = ""
    for line in lines:
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "id":
            number = value
        elif field == "data":
            assert "data: " not in value, "the public client splits at every `data: `"
            yield name, number, json.loads(value)
        elif not line:
            name = number = ""
