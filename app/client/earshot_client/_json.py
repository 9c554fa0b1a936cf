"""Decoding what the service answers."""

from typing import TypeVar

import msgspec

from ._errors import ServiceUnreachable

T = TypeVar("T")


def decoded(data: bytes, kind: type[T]) -> T:
    """Return the value that is written in some JSON.

    Raises:
        ServiceUnreachable: it is no JSON of that kind, so another program answers at this URL.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise ServiceUnreachable(f"what answers there does not speak this interface: {error}") from None
