"""Requests, answers and retries as steps of a flow: written once, without I/O.

A flow is a generator that yields steps. The connection runs each step and sends its result back: an answer for a call,
the function's return value for work. `_connection` does so in threads, `_async_connection` on an event loop.
"""

import logging
import math
import random
from collections.abc import Callable, Generator, Mapping, Set
from typing import Any, BinaryIO, Final, TypeVar
from urllib.parse import quote

import msgspec

from ._errors import SESSION_ERRORS, ErrorClasses, RequestRefused, ServiceUnreachable, UnknownFormat

T = TypeVar("T")

log: Final = logging.getLogger("earshot_client")

#: Seconds before each retry of a call that had no answer or found the service busy.
RETRIES: Final = (0.1, 0.3, 1.0, 2.0, 4.0)
#: Seconds without a connection after which a socket or a job's stream that was open gives up.
PATIENCE: Final = 300.0
#: Statuses of a busy service, or of a proxy that gave up waiting for it.
BUSY: Final = frozenset({502, 503, 504})
#: The status of a service that was too busy to do anything, unless `Answer.final` says that a write may still succeed.
#: After the others it may have carried out the request.
NOTHING_DONE: Final = frozenset({503})
#: The status for audio that cannot be decoded; a header gives the reason.
UNREADABLE: Final = 500
#: The longest pause in seconds that a service may ask for.
LONGEST_PAUSE: Final = 30.0
#: The first pause of a busy call that is at least this long is logged.
LONG_PAUSE: Final = 1.0
#: Each pause is longer by up to this share, so that clients do not come back at the same moment.
JITTER: Final = 0.25
#: The decoder's errors for bytes that are not JSON of the expected type.
NOT_JSON: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
#: A connection that lasted this many seconds works, even without messages.
STABLE_SECONDS: Final = 10.0


class Upload(msgspec.Struct, frozen=True):
    """A multipart body: text fields and one file, read from its beginning piece by piece."""

    fields: Mapping[str, str]
    part: str
    name: str
    content_type: str
    file: BinaryIO


class Call(msgspec.Struct, frozen=True):
    """A request, with a body or an upload."""

    method: str
    path: str
    body: bytes = b""
    headers: Mapping[str, str] = {}
    query: Mapping[str, str] = {}
    upload: Upload | None = None


class Answer(msgspec.Struct, frozen=True):
    """An answer: status, body, the seconds of Retry-After, and the headers Earshot-Reason and Location.

    It is `final` if X-Should-Retry is false: sending the same request again may do it twice.
    """

    status: int
    body: bytes = b""
    retry_after: float = 0.0
    reason: str = ""
    location: str = ""
    final: bool = False


class NoAnswer(msgspec.Struct, frozen=True):
    """A call without an answer, and the reason."""

    reason: str


class Pause(msgspec.Struct, frozen=True):
    """A pause before the next step."""

    seconds: float


class Work(msgspec.Struct, frozen=True):
    """A function that may block, for example on a file."""

    function: Callable[[], object]


class Items(msgspec.Struct, frozen=True):
    """Items for the caller, in order."""

    items: tuple[Any, ...]


Step = Call | Pause | Work | Items
Flow = Generator[Step, Any, T]


class _Detail(msgspec.Struct, frozen=True):
    type: str
    loc: tuple[str | int, ...]

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.loc))} ({self.type})"


class _Error(msgspec.Struct, frozen=True):
    error: str
    details: tuple[_Detail, ...] = ()


def ask(
    call: Call, repeatable: bool = True, errors: ErrorClasses = SESSION_ERRORS, busy: Set[int] = BUSY
) -> Flow[Answer]:
    """Make a call; retry it after a status in `busy`, and after no answer.

    If it is not `repeatable`, retry it only after a 503 that is not final, because then nothing was done.

    Raises:
        ServiceUnreachable: the last try had no answer, or a redirection.
        RequestRefused: the answer is an error, of its class in `errors`.
    """
    if not repeatable:
        busy = busy & NOTHING_DONE
    is_quiet = True
    for delay in (*RETRIES, None):
        reply: Answer | NoAnswer = yield call
        if isinstance(reply, Answer) and reply.status not in busy:
            break
        if delay is None or not (repeatable or (isinstance(reply, Answer) and not reply.final)):
            break
        least = reply.retry_after if isinstance(reply, Answer) else 0.0
        seconds = pause(delay, least)
        if is_quiet and seconds >= LONG_PAUSE and isinstance(reply, Answer):
            is_quiet = False
            log.warning("the service is busy (%s); trying again", _message(reply)[0])
        yield Pause(seconds)
    if isinstance(reply, Answer):
        return checked(reply, errors)
    raise ServiceUnreachable(reply.reason)


def pause(delay: float, least: float) -> float:
    """Return the seconds before the next try: `delay`, but at least what the service asked for, and some jitter."""
    return random.uniform(1, 1 + JITTER) * min(max(delay, least), LONGEST_PAUSE)


def work(function: Callable[[], T]) -> Flow[T]:
    """Call a function where it may block, and return its result."""
    result: T = yield Work(function)
    return result


def checked(answer: Answer, errors: ErrorClasses) -> Answer:
    """Return an answer that is not an error.

    Raises:
        ServiceUnreachable: a redirection, which comes from a proxy and is not followed.
        UnknownFormat: the service reports a fault in the audio.
        RequestRefused: it is another error, of its class in `errors`.
    """
    if 300 <= answer.status < 400:
        place = f"to {answer.location[:200]}" if answer.location else "without a location"
        raise ServiceUnreachable(
            f"the server at this URL redirects ({answer.status}) {place}: use the service's own URL"
        )
    if answer.status >= 400:
        if answer.reason and answer.status == UNREADABLE:
            raise UnknownFormat(answer.reason)
        raise errors.get(answer.status, RequestRefused)(answer.status, *_message(answer))
    return answer


def sendable(text: str) -> str:
    """Replace each byte of a file name or argument that is not UTF-8 by a question mark."""
    return text.encode(errors="replace").decode()


def finite(number: float | None) -> float | None:
    """Return a number that JSON has; others would be sent as null.

    Raises:
        ValueError: it is infinite or not a number.
    """
    if number is not None and not math.isfinite(number):
        raise ValueError(f"{number} is not a finite number")
    return number


def segment(text: str) -> str:
    """Return an id or name as one segment of a path; dots are quoted too, because `..` would lead to another path."""
    return quote(sendable(text), safe="").replace(".", "%2E")


def _message(answer: Answer) -> tuple[str, bool]:
    """Return what an error says, and whether another program than the service says it."""
    try:
        body = msgspec.json.decode(answer.body, type=_Error)
    except NOT_JSON:
        return f"the service answered {answer.status}, or a proxy before it", True
    return ": ".join(filter(None, (body.error, ", ".join(map(str, body.details))))), False
