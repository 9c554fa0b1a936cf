"""Decodes answers of the service."""

from typing import Final, TypeVar

import msgspec

from ._errors import ServiceUnreachable

T = TypeVar("T")

FOREIGN: Final = "the server at this URL is not an Earshot service, or a proxy changed its answer"


def decoded(data: bytes, kind: type[T]) -> T:
    """Decode JSON of a known type.

    Raises:
        ServiceUnreachable: it is not JSON of that type, so another program answers at this URL.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise ServiceUnreachable(f"{FOREIGN}: {error}") from None
