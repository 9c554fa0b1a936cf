"""Descriptions of operations: parameters, answers and errors.

Each room has a description module beside its operations, with one `Description` for each. `app.documents` builds the
documents from these, from the schemas that validate requests, and from errors as they are sent: the exception itself
describes an error, so its status, headers and body are never written twice.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import msgspec

from app.http.queries import IntegerParameter
from app.http.replies import Reply
from topics.errors import EarshotError

#: Who described an operation first: the contract, the vendor's later public clients, or Earshot.
Origin = Literal["contract", "public-clients", "earshot"]
Place = Literal["path", "query", "header"]

JSON: Final = "application/json"


class TooLong(msgspec.Struct, frozen=True):
    """The error for a body longer than one of the deployment's limits."""

    limit: str


#: An error as raised, as a room's answer, or as a status without a message.
Fault = EarshotError | Reply | TooLong | int


class Parameter(msgspec.Struct, frozen=True):
    """A parameter of a path, a query or a header."""

    name: str
    place: Place
    #: Annotated type of its value, which arrives as text.
    type: Any
    text: str
    required: bool = False
    example: Any = None
    default: Any = None


class Body(msgspec.Struct, frozen=True):
    """A JSON body, validated by a type."""

    type: Any
    #: By name; objects of the type, or their decoded JSON.
    examples: Mapping[str, Any]
    #: It may have `SMALL_BODY` bytes; otherwise the faults have its limit.
    small: bool = True


class Part(msgspec.Struct, frozen=True):
    """A part of a form; its type is the type of its text, or bytes for a file."""

    type: Any
    text: str
    #: For a file, the usual media types.
    content_type: str = ""
    required: bool = True


class Form(msgspec.Struct, frozen=True):
    """A multipart/form-data body: its parts by name."""

    parts: Mapping[str, Part]
    #: Texts of the parts; for a file, its name.
    examples: Mapping[str, Mapping[str, Any]]


class Answer(msgspec.Struct, frozen=True):
    """A success. Several types are alternatives; an empty tuple means an empty body."""

    text: str
    types: tuple[Any, ...] = ()
    #: By name; for text answers, the text itself.
    examples: Mapping[str, Any] = {}
    media: str = JSON
    #: Headers by name, with their descriptions.
    headers: Mapping[str, str] = {}
    #: Types of the data of server-sent events, by event name.
    events: Mapping[str, Any] = {}


class Key(msgspec.Struct, frozen=True):
    """The key that an operation requires."""

    scheme: Literal["projectKey", "projectBearer", "organizationKey", "operatorKey"]
    #: The deployment setting that makes the key required; "" means always.
    only_with: str = ""
    #: Requests without a key are answered too.
    optional: bool = False


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """One operation. Texts name limits as `{limit}`, filled in from the deployment's options."""

    summary: str
    text: str = ""
    origin: Origin = "earshot"
    key: Key | None = None
    #: The suffix of its path, if one route serves several operations by suffix.
    end: str = ""
    parameters: tuple[Parameter, ...] = ()
    #: Alternatives by media type.
    bodies: tuple[Body | Form, ...] = ()
    #: By status; several of one status differ in media type.
    answers: Mapping[int, Answer | tuple[Answer, ...]]
    #: Besides those that follow from the key and the body.
    faults: tuple[Fault, ...] = ()


def json_answer(text: str, *, headers: Mapping[str, str] = {}, **examples: msgspec.Struct) -> Mapping[int, Answer]:
    """Return the success 200 of an operation; the examples by name are all of its type."""
    (kind,) = set(map(type, examples.values()))
    return {200: Answer(text, (kind,), examples, headers=headers)}


def event_answer(
    events: Mapping[str, Any], examples: Mapping[str, str], headers: Mapping[str, str] = {}
) -> Mapping[int, Answer]:
    """Return the success 200 of an operation that answers with server-sent events, of these types by name."""
    return {200: Answer("Events.", (str,), examples, "text/event-stream", headers, events)}


def integer_query(parameter: IntegerParameter) -> Parameter:
    return Parameter(parameter.name, "query", parameter, parameter.text)


def json_body(*, small: bool = True, **examples: msgspec.Struct) -> tuple[Body]:
    """Return a body without alternatives; the examples by name are all of its type."""
    (kind,) = set(map(type, examples.values()))
    return (Body(kind, examples, small),)


def fault_of(judge: Callable[..., object], *arguments: Any, **named: Any) -> EarshotError:
    """Return the error that `judge` raises for these arguments."""
    try:
        judge(*arguments, **named)
    except EarshotError as error:
        return error
    raise AssertionError(f"{judge} has nothing against {arguments}")
