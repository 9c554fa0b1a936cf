"""Reading what the service says."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from app.client._errors import Unreachable

T = TypeVar("T")


def decoded(data: bytes, kind: type[T]) -> T:
    """Return what some JSON says.

    Raises:
        Unreachable: it says nothing of that kind.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise Unreachable(f"what answers there does not speak this interface: {error}") from None
