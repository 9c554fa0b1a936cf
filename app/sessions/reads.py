"""Operations that read windows: `/status` in pages, `/results` for newer clients, `/predict` for one at once."""

from __future__ import annotations

from typing import Final

import msgspec
import orjson

from app.http.bodies import PREDICT, audio_bytes, chunk_body, decode
from app.http.operation import Call
from app.http.queries import integer, parameters
from app.http.replies import Reply, json_bytes
from app.sessions.commands import idempotency_of, refusal, submitted
from app.sessions.waiting import settled
from topics.errors import BadRequest, Unavailable
from topics.ports.sessions import SessionView
from topics.sessions.records import Chunk
from topics.sessions.rules import SessionHead, SessionState

PAGE: Final = 1024
_BOOL: Final = {True: "true", False: "false"}


class Place(msgspec.Struct, frozen=True):
    """The page a client asks for."""

    offset: int
    count: int
    #: True when a token led here: the client follows the session and comes back until it ends.
    follows: bool = False


async def read_status(call: Call) -> Reply:
    """GET /audio_sessions/{id}/status: a page of windows.

    It waits while the page is empty and audio waits for inference. A client that follows tokens waits at the end of an
    unfinished session too: it would ask again at once.
    """
    session = call.session
    place = _place(call, session)

    def enough(view: SessionView) -> bool:
        awaited = not view.head.finished if place.follows else view.head.in_progress
        return readable(view) > place.offset or not awaited

    view = await settled(call, session, enough)
    return _of_model(view, json_bytes(_status(call, session, view, place)))


async def read_results(call: Call) -> Reply:
    """GET /audio_sessions/{id}/results: windows, and where their session stands; a closed one is waited for."""
    session = call.session
    given = parameters(call.scope)
    offset, limit = integer(given, "offset", 0, 0), integer(given, "limit", PAGE, 1, PAGE)
    view = await settled(call, session, lambda view: view.head.finished or view.head.state is SessionState.WRITABLE)
    total = readable(view)
    end = max(offset, min(offset + limit, total))
    more = end < total or not view.head.finished
    opening = f'{{"state":"{_results_state(view.head)}",{_error(view.head)}"has_more":{_BOOL[more]},"data":['
    events = call.edge.renderer.events(session, view.opened, offset, end)
    return _of_model(view, json_bytes(b"%s%s]}" % (opening.encode("utf-8"), events)))


def _of_model(view: SessionView, reply: Reply) -> Reply:
    """Say which model scored the windows; the contract's bodies have no place for it."""
    if view.opened.model:
        reply.headers.append((b"earshot-model", view.opened.model.encode("ascii")))
    return reply


async def predict(call: Call) -> Reply:
    """POST /audio_sessions/{id}/predict: one independent window, answered with its events."""
    session = call.session
    limit = call.generation.chunk_limit
    wanted = decode(PREDICT, await call.body(chunk_body(limit)))
    audio = audio_bytes(wanted.data, limit)
    chunk = Chunk(next(call.edge.commands), wanted.sequence, audio, idempotency_of(call), predict=True)
    verdict = await submitted(call, session, chunk)
    if verdict.status != 200:
        return refusal(verdict)
    window = verdict.next - 1
    view = await settled(call, session, lambda view: view.head.windows > window or view.head.finished)
    if view.head.windows <= window:
        if view.head.error is not None:
            raise BadRequest(view.head.error)
        raise Unavailable(f"window {window} was accepted, but not analysed in time")
    event = call.edge.renderer.events(session, view.opened, window, window + 1)
    return json_bytes(b'{"data":%s,"next_sequence":%d}' % (event, verdict.next))


def readable(view: SessionView) -> int:
    """Return how many windows are shown.

    The last window of a file is shown only when the file's end is known, for clients that cannot read an empty last
    page: so the page without a token is never empty after one that was not.
    """
    head = view.head
    if head.kind == "file" and not head.finished:
        return max(0, head.windows - 1)
    return head.windows


def _place(call: Call, session: str) -> Place:
    given = parameters(call.scope)
    if token := given.get("next_token"):
        return Place(*call.edge.tokens.read(session, token), follows=True)
    return Place(integer(given, "offset", 0, 0), integer(given, "count", PAGE, 1, PAGE))


def _status(call: Call, session: str, view: SessionView, place: Place) -> bytes:
    head = view.head
    total = readable(view)
    end = max(place.offset, min(place.offset + place.count, total))
    following = ""
    if end < total or not head.finished:
        # Past the end of what is there, the next page begins where windows will come.
        token = call.edge.tokens.issue(session, end, place.count)
        following = f',"next_token":"{token}"'
    opening = (
        f'{{"state":"{head.state}",{_error(head)}"refs":{{"session_id":"{session}","chunk_sequence":{head.next}}},'
        f'"inference":{{"in_progress":{_BOOL[head.in_progress]},"page":{{"count":{end - place.offset},'
        f'"offset":{place.offset},"total":{total}{following}}},"results":['
    )
    events = call.edge.renderer.events(session, view.opened, place.offset, end)
    return b"%s%s]}}" % (opening.encode("utf-8"), events)


def _results_state(head: SessionHead) -> str:
    if head.error is not None:
        return "error"
    if head.state is SessionState.WRITABLE:
        return "pending"
    return "done" if head.finished else "in-progress"


def _error(head: SessionHead) -> str:
    """The member that only sessions with an error have: some clients take any `error`, even null, for a failure."""
    return "" if head.error is None else f'"error":{orjson.dumps(head.error).decode("utf-8")},'
