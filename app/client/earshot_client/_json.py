"""Decodes answers of the service."""

from typing import Final, TypeVar

import msgspec

from ._calls import NOT_JSON, Call, Flow, ask
from ._errors import SESSION_ERRORS, ErrorClasses, ServiceUnreachable

T = TypeVar("T")

FOREIGN: Final = "the server at this URL is not an Earshot service, or a proxy changed its answer"


def fetch(call: Call, kind: type[T], errors: ErrorClasses = SESSION_ERRORS, repeatable: bool = True) -> Flow[T]:
    """Make a call as `ask` does, and return its answer, decoded."""
    answer = yield from ask(call, repeatable, errors)
    return decoded(answer.body, kind)


def done(call: Call, errors: ErrorClasses = SESSION_ERRORS, repeatable: bool = True) -> Flow[None]:
    """Make a call as `ask` does, whose answer has no body.

    Raises:
        ServiceUnreachable: the answer has one, so another program answers at this URL.
    """
    if (yield from ask(call, repeatable, errors)).status != 204:
        raise ServiceUnreachable(FOREIGN)


def decoded(data: bytes, kind: type[T]) -> T:
    """Decode JSON of a known type.

    Raises:
        ServiceUnreachable: it is not JSON of that type, so another program answers at this URL.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except NOT_JSON as error:
        raise ServiceUnreachable(f"{FOREIGN}: {error}") from None


def decoded_event(kind: str, data: bytes, wanted: str, type_: type[T]) -> T:
    """Decode the data of an event of the kind `wanted`.

    Raises:
        ValueError: the event is of another kind.
        ServiceUnreachable: it is not JSON of that type.
    """
    if kind != wanted:
        raise ValueError(f"the event is of the kind {kind}, not {wanted}")
    return decoded(data, type_)
