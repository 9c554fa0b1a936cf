"""What is asked of the service and in which order, written once, without input or output.

A flow is a generator. It yields calls, pauses and pages; whoever drives it carries out a call and sends back what
came of it, sleeps through a pause, and hands a page's events to the caller.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Generator, Iterable, Mapping, Set
from typing import BinaryIO, Final, TypeVar

import msgspec

from app.client._errors import BY_STATUS, Kinds, NoSession, SessionFailed, Unreachable, refused
from app.client._json import decoded
from app.client._models import Opening, Page, Session, Status

T = TypeVar("T")

#: Seconds before each repetition of a call that found no answer or a service that is busy.
RETRIES: Final = (0.1, 0.3, 1.0, 2.0, 4.0)
#: Answers of a busy service, or of a proxy that gave up waiting for it.
BUSY: Final = frozenset({502, 503, 504})
#: Seconds before the next read after one that waited and found nothing.
EMPTY_PAUSE: Final = 0.1
#: The longest wait that a service may ask for, in seconds.
LONGEST_PAUSE: Final = 30.0


class Upload(msgspec.Struct, frozen=True):
    """A multipart body: text fields, and one file that is read from its beginning, a piece at a time."""

    fields: Mapping[str, str]
    part: str
    name: str
    content_type: str
    file: BinaryIO


class Call(msgspec.Struct, frozen=True):
    """A request."""

    method: str
    path: str
    body: bytes = b""
    headers: Mapping[str, str] = {}
    query: Mapping[str, str] = {}
    #: Instead of a body.
    upload: Upload | None = None


class Answer(msgspec.Struct, frozen=True):
    """What came back: status, body, the seconds of a Retry-After header, and the text of an Earshot-Reason."""

    status: int
    body: bytes = b""
    retry_after: float = 0.0
    reason: str = ""


class Lost(msgspec.Struct, frozen=True):
    """No answer came, for this reason."""

    reason: str


class Pause(msgspec.Struct, frozen=True):
    """Nothing to do for so many seconds."""

    seconds: float


Step = Call | Pause | Page
Flow = Generator[Step, Answer | Lost | None, T]


class _Detail(msgspec.Struct, frozen=True):
    type: str
    loc: tuple[str | int, ...]

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.loc))} ({self.type})"


class _Refusal(msgspec.Struct, frozen=True):
    error: str
    details: tuple[_Detail, ...] = ()


class _OfficialTag(msgspec.Struct, frozen=True):
    name: str


class _Refs(msgspec.Struct, frozen=True):
    chunk_sequence: int


def create(key: str, opening: Opening) -> Flow[Session]:
    """Open a session. Without an answer it is not tried again: that might open two."""
    body = {
        "type": opening.kind,
        "content_type": opening.content_type,
        "default_sensitivity": opening.sensitivity.default,
        "tags_sensitivity": opening.sensitivity.tags,
        "total_size": opening.total_size,
        "file_name": opening.file_name,
    }
    given = {name: value for name, value in body.items() if value is not None}
    answer = yield from ask(_call("POST", "/audio_sessions/", given, {"X-Api-Key": key}), again=False)
    return decoded(answer.body, Session)


def put_chunk(session: str, sequence: int, data: bytes) -> Flow[int]:
    """Upload a chunk and return the number of the next one.

    The Idempotency-Key is a digest of what is sent, so the same upload again, also by a client that was restarted,
    gets the first answer again, and no other upload does.
    """
    digest = hashlib.blake2b(f"{session} {sequence} ".encode() + data, digest_size=16)
    headers = {"Idempotency-Key": digest.hexdigest()}
    path = f"/audio_sessions/{session}/chunks/{sequence}"
    answer = yield from ask(_call("PUT", path, {"data": b64encode(data).decode()}, headers))
    return decoded(answer.body, _Refs).chunk_sequence


def seal(session: str) -> Flow[None]:
    """Make a session readonly: it takes no more chunks, and a file's inference starts."""
    yield from ask(_call("PATCH", f"/audio_sessions/{session}", {"make_readonly": True}))


def delete(session: str) -> Flow[None]:
    """Delete a session; one that is gone already counts as deleted, as it is after an answer that was lost."""
    try:
        yield from ask(Call("DELETE", f"/audio_sessions/{session}"))
    except NoSession:
        return


def read(session: str, token: str | None) -> Flow[Status]:
    """Read one page, waiting for it on the server's side."""
    query = {"next_token": token} if token else {}
    answer = yield from ask(Call("GET", f"/audio_sessions/{session}/status", query=query))
    return decoded(answer.body, Status)


def follow(session: str) -> Flow[None]:
    """Yield every page of a session, in order, until it has ended.

    Raises:
        SessionFailed: the session has an error; what was analysed before it has been yielded.
    """
    token: str | None = None
    while True:
        status = yield from read(session, token)
        yield status.page
        token = status.page.token
        if token is None:
            if status.error is not None:
                raise SessionFailed(status.error)
            return
        if not status.page.events:
            yield Pause(EMPTY_PAUSE)


def detect(key: str, opening: Opening, chunks: Iterable[bytes]) -> Flow[None]:
    """Open a file session, upload its chunks, yield its pages; `total_size` of the opening seals it."""
    session = yield from create(key, opening)
    sequence = session.chunk_sequence
    for chunk in chunks:
        sequence = yield from put_chunk(session.id, sequence, chunk)
    yield from follow(session.id)


def official_tags() -> Flow[tuple[str, ...]]:
    """Return the names of all tags that the service's model knows."""
    answer = yield from ask(Call("GET", "/tags/official"))
    return tuple(tag.name for tag in decoded(answer.body, list[_OfficialTag]))


def sendable(text: str) -> str:
    """Return text with a question mark for each byte that a file name or an argument has and UTF-8 has not."""
    return text.encode(errors="replace").decode()


def _call(method: str, path: str, body: object, headers: Mapping[str, str] = {}) -> Call:
    return Call(method, path, msgspec.json.encode(body), {"Content-Type": "application/json", **headers})


def ask(call: Call, again: bool = True, kinds: Kinds = BY_STATUS, busy: Set[int] = BUSY) -> Flow[Answer]:
    """Make a call, repeating it after a status of `busy` and, with `again`, when the answer is lost.

    Raises:
        Unreachable, Refused: what the last try ended with.
    """
    for delay in (*RETRIES, None):
        came = yield call
        if isinstance(came, Answer) and came.status not in busy:
            return checked(came, kinds)
        if delay is None or not (again or isinstance(came, Answer)):
            break
        asked = came.retry_after if isinstance(came, Answer) else 0.0
        yield Pause(min(max(delay, asked), LONGEST_PAUSE))
    if isinstance(came, Answer):
        return checked(came, kinds)
    raise Unreachable(came.reason if came else "nothing was asked")


def checked(answer: Answer, kinds: Kinds) -> Answer:
    """Return an answer that is no error.

    Raises:
        Refused: it is one; `kinds` has its class.
    """
    if answer.status >= 400:
        raise refused(answer.status, _message(answer), kinds)
    return answer


def _message(answer: Answer) -> str:
    try:
        refusal = msgspec.json.decode(answer.body, type=_Refusal)
    except msgspec.MsgspecError:
        return answer.reason or f"the service answered {answer.status}"
    return ": ".join(filter(None, (refusal.error, ", ".join(map(str, refusal.details)))))
