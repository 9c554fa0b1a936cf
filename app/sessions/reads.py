"""Operations that read windows: `/status` in pages, `/results` for newer clients, `/predict` for a single window."""

from typing import Final

import msgspec

from app.http.bodies import chunk_body
from app.http.call import Call
from app.http.queries import IntegerParameter, query_parameters
from app.http.replies import Reply, json_reply_of_bytes
from app.sessions.commands import idempotency_digest, naming_limit, refusal, verdict_on
from app.sessions.cursors import next_window, parse
from app.sessions.rendering import readable_windows
from app.sessions.requests import PREDICT, read_audio
from app.sessions.session_context import SessionContext
from app.sessions.waiting import allowed_session, awaited_view, session_view
from topics.errors import BadRequest, Unavailable
from topics.hearing import STANDS_IN
from topics.ports.sessions import SessionView
from topics.sessions.records import Chunk
from topics.sessions.rules import SessionHead, SessionState

PAGE: Final = 1024
OFFSET: Final = IntegerParameter("offset", "Windows to skip.", 0)
COUNT: Final = IntegerParameter("count", "Maximum number of windows.", PAGE, 1, PAGE)
#: The newer clients' name for it.
LIMIT: Final = IntegerParameter("limit", COUNT.text, PAGE, 1, PAGE)
_BOOL: Final = {True: "true", False: "false"}


class PageRequest(msgspec.Struct, frozen=True):
    """The page that a client asks for."""

    offset: int
    count: int
    #: True if a token led here: the client follows the session and returns until it ends.
    follows: bool = False


async def read_status(call: Call, context: SessionContext) -> Reply:
    """GET /audio_sessions/{id}/status: a page of windows.

    It waits while the page is empty and audio waits for inference. For a client that follows tokens, it also waits at
    the end of an unfinished session, because the client would ask again at once. The last page of a stream that is
    about to end waits too: with a token, it would lead to an empty page, which some clients cannot read.
    """
    session, view = await allowed_session(call, context)
    page = _page_request(call, context, session)

    def complete(view: SessionView) -> bool:
        total = readable_windows(view)
        if view.head.ending and page.offset + page.count >= total:
            return False
        pending = not view.head.finished if page.follows else view.head.in_progress
        return total > page.offset or not pending

    view = await awaited_view(call, context, session, view, complete)
    return _with_model(view, json_reply_of_bytes(_status(context, session, view, page)))


async def read_results(call: Call, context: SessionContext) -> Reply:
    """GET /audio_sessions/{id}/results: windows, and the progress of their session; waits for a closed one."""
    session, view = await allowed_session(call, context)
    query = query_parameters(call.scope)
    offset, limit = _offset(session, query), LIMIT.read(query)

    def complete(view: SessionView) -> bool:
        return view.head.finished or view.head.state is SessionState.WRITABLE

    view = await awaited_view(call, context, session, view, complete)
    total = readable_windows(view)
    end = max(offset, min(offset + limit, total))
    more = end < total or not view.head.finished
    opening = f'{{"state":"{_results_state(view.head)}",{_error(view.head)}"has_more":{_BOOL[more]},"data":['
    events = context.renderer.events(session, view.opened, offset, end)
    return _with_model(view, json_reply_of_bytes(b"%s%s]}" % (opening.encode("utf-8"), events)))


def _with_model(view: SessionView, reply: Reply) -> Reply:
    """Name the model that scored the windows in a header, because the contract's bodies have no field for it."""
    if view.opened.model:
        reply.headers.append((b"earshot-model", view.opened.model.encode("ascii")))
    if view.opened.hearing.stands_in:
        reply.headers.append((b"earshot-note", STANDS_IN.encode("ascii")))
    return reply


async def predict(call: Call, context: SessionContext) -> Reply:
    """POST /audio_sessions/{id}/predict: score one independent window and return its events."""
    session, view = await allowed_session(call, context)
    holder = call.holder
    with naming_limit(context.chunk_limit) as limit:
        text = await call.body(chunk_body(limit), holder)
        body, audio = await read_audio(context.decoding, holder, PREDICT, text, limit)
    chunk = Chunk(next(context.commands), body.sequence, audio, idempotency_digest(call), predict=True)
    verdict = await verdict_on(context, session, chunk)
    if verdict.status != 200:
        return refusal(verdict)
    window = verdict.next - 1

    def complete(view: SessionView) -> bool:
        return view.head.windows > window or view.head.finished

    view = await awaited_view(call, context, session, session_view(context, session), complete)
    if view.head.windows <= window:
        if view.head.error is not None:
            raise BadRequest(view.head.error)
        raise not_in_time(window)
    event = context.renderer.events(session, view.opened, window, window + 1)
    return json_reply_of_bytes(b'{"data":%s,"next_sequence":%d}' % (event, verdict.next))


def not_in_time(window: int) -> Unavailable:
    return Unavailable(f"window {window} was accepted, but not analysed in time", uncertain=True)


def _page_request(call: Call, context: SessionContext, session: str) -> PageRequest:
    query = query_parameters(call.scope)
    if token := query.get("next_token"):
        return PageRequest(*context.tokens.read(session, token), follows=True)
    return PageRequest(_offset(session, query), COUNT.read(query))


def _offset(session: str, query: dict[str, str]) -> int:
    """Return how many windows to skip: up to a cursor, if there is one.

    Raises:
        BadRequest: no number, or an invalid cursor or one of another session.
    """
    after = query.get("after")
    return next_window(parse("after", session, after)) if after else OFFSET.read(query)


def _status(context: SessionContext, session: str, view: SessionView, page: PageRequest) -> bytes:
    head = view.head
    total = readable_windows(view)
    end = max(page.offset, min(page.offset + page.count, total))
    following = ""
    if end < total or not head.finished:
        # At the end of the stored windows, the next page begins where new ones will come.
        token = context.tokens.issue(session, end, page.count)
        following = f',"next_token":"{token}"'
    opening = (
        f'{{"state":"{head.state}",{_error(head)}"refs":{{"session_id":"{session}","chunk_sequence":{head.next}}},'
        f'"inference":{{"in_progress":{_BOOL[head.in_progress]},"page":{{"count":{end - page.offset},'
        f'"offset":{page.offset},"total":{total}{following}}},"results":['
    )
    events = context.renderer.events(session, view.opened, page.offset, end)
    return b"%s%s]}}" % (opening.encode("utf-8"), events)


def _results_state(head: SessionHead) -> str:
    if head.error is not None:
        return "error"
    if head.state is SessionState.WRITABLE:
        return "pending"
    return "done" if head.finished else "in-progress"


def _error(head: SessionHead) -> str:
    """Return the `error` member only for sessions with an error: some clients treat any `error`, even null, as one."""
    return "" if head.error is None else f'"error":{msgspec.json.encode(head.error).decode("utf-8")},'
