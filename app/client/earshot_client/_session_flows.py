"""Flows of requests about sessions."""

import hashlib
from base64 import b64encode
from collections.abc import Callable, Mapping
from functools import partial
from typing import BinaryIO, Final

import msgspec

from . import _media
from ._calls import Call, Flow, Items, Pause, ask, finite, segment, sendable, work
from ._errors import ServiceBusy, SessionFailed, SessionNotFound
from ._json import done, fetch
from ._list_values import SessionPage
from ._live_values import Activity
from ._session_values import Prediction, Sensitivity, Session, SessionOptions, SessionResults, SessionStatus
from ._times import Time, time_text
from ._uploads import Audio, opened

#: Seconds to wait after a read that returned no events.
EMPTY_PAUSE: Final = 0.1


class OfficialTag(msgspec.Struct, frozen=True):
    """A tag that the service's model knows."""

    name: str


class _NextChunk(msgspec.Struct, frozen=True):
    chunk_sequence: int


def create(key: str, options: SessionOptions) -> Flow[Session]:
    """Open a session.

    It is retried only if the service was too busy to open one, and not without an answer or while the write may still
    succeed: that might open two.
    """
    call = _call("POST", "/audio_sessions/", creation(options), {"X-Api-Key": key})
    return fetch(call, Session, repeatable=False)


def creation(options: SessionOptions) -> dict[str, object]:
    """Return the fields of a request that opens a session."""
    fields = {
        "type": options.kind,
        "content_type": options.content_type,
        "default_sensitivity": options.sensitivity.default,
        "tags_sensitivity": options.sensitivity.tags,
        "total_size": options.total_size,
        "file_name": options.file_name,
        "metadata": options.metadata or None,
        "window_hop": options.window_hop,
        "file_length": finite(options.file_length),
        "model": options.model,
        "sound_rule": options.sound_rule,
        "sound_rules": options.sound_rules or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def put_chunk(
    key: str, session_id: str, sequence: int, data: bytes, captured: Time | None = None, spooled: bool = False
) -> Flow[int]:
    """Upload a chunk and return the number of the next one.

    The Idempotency-Key is a digest of the request. So the same upload, even by a restarted client, gets the first
    answer again, and no other upload does.
    """
    digest = hashlib.blake2b(sendable(f"{session_id} {sequence} ").encode() + data, digest_size=16)
    headers = {"Idempotency-Key": digest.hexdigest(), **_keyed(key)}
    if captured is not None:
        headers["Earshot-Captured-At"] = f"{time_text(captured)}{'; spooled' if spooled else ''}"
    call = _call("PUT", _path(session_id, f"/chunks/{sequence}"), {"data": b64encode(data).decode()}, headers)
    return (yield from fetch(call, _NextChunk)).chunk_sequence


def seal(key: str, session_id: str) -> Flow[None]:
    """Make a session readonly: it takes no more chunks, and the analysis of a file starts."""
    return change(key, session_id, make_readonly=True)


def change(key: str, session_id: str, **fields: object) -> Flow[None]:
    return done(_call("PATCH", _path(session_id), fields, _keyed(key)))


def delete(key: str, session_id: str) -> Flow[None]:
    """Delete a session. A missing session counts as deleted: the answer to an earlier try may have been lost."""
    try:
        yield from done(Call("DELETE", _path(session_id), headers=_keyed(key)))
    except SessionNotFound:
        return


def status(key: str, session_id: str, token: str | None) -> Flow[SessionStatus]:
    """Read one page; the service waits until it has something in it."""
    query = {"next_token": token} if token else {}
    return fetch(Call("GET", _path(session_id, "/status"), headers=_keyed(key), query=query), SessionStatus)


def events(key: str, session_id: str) -> Flow[None]:
    """Yield every page of a session, in order, until the session ends.

    Raises:
        SessionFailed: the session has an error; earlier events have been yielded.
    """
    token: str | None = None
    while True:
        reply = yield from status(key, session_id, token)
        yield Items(reply.page.events)
        token = reply.page.token
        if token is None:
            if reply.error is not None:
                raise SessionFailed(reply.error)
            return
        if not reply.page.events:
            yield Pause(EMPTY_PAUSE)


def send_file(
    key: str, file: BinaryIO, options: SessionOptions, on_session: Callable[[Session], object] | None = None
) -> Flow[Session]:
    """Open a file session and upload its chunks. Its `total_size` makes it readonly, even if the file grows."""
    assert options.total_size is not None
    session = yield from create(key, options)
    if on_session is not None:
        on_session(session)
    sequence, left = session.chunk_sequence, options.total_size
    while chunk := (yield from work(partial(file.read, min(left, _media.CHUNK)))):
        sequence = yield from put_chunk(key, session.id, sequence, chunk)
        left -= len(chunk)
    if left:  # The file has become shorter.
        yield from seal(key, session.id)
    return session


def detect(
    key: str, audio: Audio, sensitivity: Sensitivity, on_session: Callable[[Session], object] | None
) -> Flow[None]:
    """Send a file as a session and yield its pages."""
    with (yield from opened(audio)) as file:
        name = sendable(_media.name_of(file))
        options = yield from work(lambda: _media.session_options(file, name, sensitivity))
        session = yield from send_file(key, file, options, on_session)
    yield from events(key, session.id)


def results(key: str, session_id: str, offset: int, limit: int) -> Flow[SessionResults]:
    """Read events and the state of their session; for a closed session the service waits until all are there."""
    query = {"offset": str(offset), "limit": str(limit)}
    return fetch(Call("GET", _path(session_id, "/results"), headers=_keyed(key), query=query), SessionResults)


def predict(key: str, session_id: str, window: bytes, sequence: int | None) -> Flow[Prediction]:
    """Send a single window. Like `create`, it is retried only if nothing was done: it might become the next one."""
    body: dict[str, object] = {"data": b64encode(window).decode()}
    if sequence is not None:
        body["sequence"] = sequence
    call = _call("POST", _path(session_id, "/predict"), body, _keyed(key))
    return fetch(call, Prediction, repeatable=False)


def listing(key: str, query: Mapping[str, str]) -> Flow[SessionPage]:
    call = Call("GET", "/audio_sessions/", headers={"X-Api-Key": key}, query=query)
    return fetch(call, SessionPage)


def activity(session_id: str | None, key: str, day: str | None, offset_minutes: int) -> Flow[Activity]:
    """Read a day of a session, or of the whole project."""
    path = "/api/v1/activity" if session_id is None else _path(session_id, "/activity")
    query = {"offset_minutes": str(offset_minutes)} | ({} if day is None else {"day": day})
    return fetch(Call("GET", path, headers=_keyed(key), query=query), Activity)


def is_ready() -> Flow[bool]:
    """Return True if the service serves requests now."""
    try:
        yield from ask(Call("GET", "/readyz"), busy=frozenset())
    except ServiceBusy:
        return False
    return True


def official_tags() -> Flow[tuple[str, ...]]:
    return tuple(tag.name for tag in (yield from fetch(Call("GET", "/tags/official"), list[OfficialTag])))


def _path(session_id: str, end: str = "") -> str:
    return f"/audio_sessions/{segment(session_id)}{end}"


def _keyed(key: str) -> dict[str, str]:
    """Return the key's header, which some deployments require besides the session's id."""
    return {"X-Api-Key": key} if key else {}


def _call(method: str, path: str, body: object, headers: Mapping[str, str] = {}) -> Call:
    return Call(method, path, msgspec.json.encode(body), {"Content-Type": "application/json", **headers})
