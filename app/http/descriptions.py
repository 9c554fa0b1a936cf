"""How an operation is described: what it takes, what it answers, and which errors it knows.

Every room has a `description.py` beside its operations with one `Description` for each. The documents of
`app.documents` are made of these, of the schemas by which requests are judged, and of errors as they are sent: an error
is described by the exception itself, so its status, headers and body are never written a second time.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import msgspec

from app.http.replies import Reply
from topics.errors import EarshotError

#: The first to describe an operation: the contract, the vendor's later public clients, or Earshot.
Origin = Literal["contract", "public-clients", "earshot"]
Place = Literal["path", "query", "header"]

JSON: Final = "application/json"


class TooLong(msgspec.Struct, frozen=True):
    """The error of a body that is longer than one of the deployment's limits."""

    limit: str


#: An error as it is raised, as a room has made an answer of it, or a status without a message.
Fault = EarshotError | Reply | TooLong | int


class Parameter(msgspec.Struct, frozen=True):
    """A parameter of a path, a query or a header."""

    name: str
    place: Place
    #: Annotated type of its value, as text of this form.
    type: Any
    text: str
    required: bool = False
    example: Any = None
    default: Any = None


class Body(msgspec.Struct, frozen=True):
    """A body in JSON, judged by a type."""

    type: Any
    #: By name; objects of the type, or what their JSON is decoded to.
    examples: Mapping[str, Any]


class Part(msgspec.Struct, frozen=True):
    """A part of a form; its type is that of its text, or bytes for a file."""

    type: Any
    text: str
    #: For a file, the usual media types.
    content_type: str = ""
    required: bool = True


class Form(msgspec.Struct, frozen=True):
    """A body of the type multipart/form-data: its parts by name."""

    parts: Mapping[str, Part]
    #: Texts of the parts; of a file, its name.
    examples: Mapping[str, Mapping[str, Any]]


class Answer(msgspec.Struct, frozen=True):
    """A success. Several types are alternatives; an empty tuple means an empty body."""

    text: str
    types: tuple[Any, ...] = ()
    #: By name; of text answers, the text itself.
    examples: Mapping[str, Any] = {}
    media: str = JSON
    #: Headers by name, with their descriptions.
    headers: Mapping[str, str] = {}
    #: Types of the data of server-sent events, by name of the event.
    events: Mapping[str, Any] = {}


class Key(msgspec.Struct, frozen=True):
    """The key that an operation asks for."""

    scheme: Literal["projectKey", "projectBearer", "organizationKey", "operatorKey"]
    #: The setting of the deployment that has to be on for it, "" for always.
    only_with: str = ""
    #: Requests without one are answered too.
    optional: bool = False


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """One operation. Texts name limits as `{limit}`: they are filled in from the deployment's options."""

    summary: str
    text: str = ""
    origin: Origin = "contract"
    key: Key | None = None
    #: The end of its path, if one route serves several operations by their ends.
    end: str = ""
    parameters: tuple[Parameter, ...] = ()
    #: Several are alternatives of different media types.
    bodies: tuple[Body | Form, ...] = ()
    #: By status; several of one status have different media types.
    answers: Mapping[int, tuple[Answer, ...]]
    faults: tuple[Fault, ...] = ()


def fault_of(judge: Callable[..., object], *arguments: Any, **named: Any) -> EarshotError:
    """Return the error that judging this raises; `judge` is what judges requests."""
    try:
        judge(*arguments, **named)
    except EarshotError as error:
        return error
    raise AssertionError(f"{judge} has nothing against {arguments}")
