"""Operations: a handler has its route, parameters, answers and errors above it.

The routes are made of these. `app.documents` makes the documents of them, of the schemas that validate requests, and of
errors as they are sent: the exception itself describes an error, so its status, headers and body are never written
twice.
"""

import inspect
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec

from app.http.operation import Handler
from app.http.queries import IntegerParameter
from app.http.replies import Reply
from topics.errors import EarshotError

C = TypeVar("C")

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


#: By status; several of one status differ in media type.
Answers = Mapping[int, Answer | tuple[Answer, ...]]


class Description(msgspec.Struct, frozen=True):
    """The decorator of a handler. What takes time or memory is a function, called when a document is built.

    The docstring of the handler is the summary and the text. It names limits of the deployment as `{limit}`, and
    constants of its module as `{CONSTANT}`.
    """

    #: Method and paths, such as `GET /jobs/{job_id}`, below the prefix of its part of the interface.
    route: str
    origin: Origin = "earshot"
    key: Key | None = None
    #: The suffix of its path, if one route serves several operations by suffix.
    end: str = ""
    parameters: tuple[Parameter, ...] = ()
    #: Alternatives by media type.
    bodies: tuple[Body | Form, ...] = ()
    answers: Answers | Callable[[], Answers] = {}
    #: Besides those that follow from the key and the body.
    faults: tuple[Fault, ...] | Callable[[], tuple[Fault, ...]] = ()
    #: What follows the text of the docstring.
    text: str = ""
    #: A stand-by may answer while the owner is away.
    standby: bool = False

    def __call__(self, handler: Handler[C]) -> "Operation[C]":
        return Operation(handler, self)


#: Read as `@operation("GET /jobs", ...)` above a handler.
operation: Final = Description


class Operation(msgspec.Struct, Generic[C], frozen=True):
    """A handler and its description."""

    handler: Handler[C]
    description: Description

    @property
    def name(self) -> str:
        return self.handler.__name__

    @property
    def summary(self) -> str:
        return self._told[0].rstrip(".")

    def text(self, limits: Mapping[str, Any]) -> str:
        """Return the text for a deployment with these limits."""
        names = {**vars(sys.modules[self.handler.__module__]), **limits}
        text = " ".join((*self._told[2].split(), self.description.text)).strip()
        # Constants name limits too.
        return text.format_map(names).format_map(names)

    @property
    def _told(self) -> tuple[str, str, str]:
        return (inspect.getdoc(self.handler) or "").partition("\n")

    @property
    def answers(self) -> Answers:
        answers = self.description.answers
        return answers() if callable(answers) else answers

    @property
    def faults(self) -> tuple[Fault, ...]:
        faults = self.description.faults
        return faults() if callable(faults) else faults


def operations_of(*modules: ModuleType) -> tuple[Operation[Any], ...]:
    """Return the operations of modules, in the order of their text."""
    return tuple(
        one
        for module in modules
        for one in vars(module).values()
        if isinstance(one, Operation) and one.handler.__module__ == module.__name__
    )


def json_answer(text: str, *, headers: Mapping[str, str] = {}, **examples: msgspec.Struct) -> Answers:
    """Return the success 200 of an operation; the examples by name are all of its type."""
    (kind,) = set(map(type, examples.values()))
    return {200: Answer(text, (kind,), examples, headers=headers)}


def event_answer(events: Mapping[str, Any], examples: Mapping[str, str], headers: Mapping[str, str] = {}) -> Answers:
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
