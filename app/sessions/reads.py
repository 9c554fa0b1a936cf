"""The operation that reads windows in pages, and what others that read them share."""

from typing import Final

import msgspec

from app.http.call import Call
from app.http.descriptions import Parameter, fault_of, integer_query, json_answer, operation
from app.http.queries import IntegerParameter, query_parameters
from app.http.replies import Reply, json_reply_of_bytes
from app.sessions.answers import Page, Sense, SessionRefs, SessionStatus
from app.sessions.cursors import next_window, parse
from app.sessions.examples import EVENTS, ID
from app.sessions.rendering import check_known, readable_windows
from app.sessions.session_context import SessionContext
from app.sessions.tokens import PageTokens
from app.sessions.waiting import NO_SUCH_SESSION, SESSION, SESSION_KEY, allowed_session, awaited_view
from app.shared_descriptions import BROKEN
from topics.hearing import STANDS_IN
from topics.ports.sessions import SessionView
from topics.sessions.rules import SessionHead

PAGE: Final = 1024
OFFSET: Final = IntegerParameter("offset", "Windows to skip.", 0)
COUNT: Final = IntegerParameter("count", "Maximum number of windows.", PAGE, 1, PAGE)
TOKEN: Final = PageTokens(bytes(16)).issue(ID, 2, PAGE)
AFTER: Final = Parameter(
    "after", "query", str, "Instead of `offset`: a live socket's cursor, or a window's number; later windows follow.",
    example="start",
)  # fmt: skip
MODEL: Final = {
    "Earshot-Model": "The model that scored the windows, as name@hash; absent if unknown.",
    "Earshot-Note": "Present only if this model replaces the intended one, which cannot be used.",
}
BOOL: Final = {True: "true", False: "false"}


class PageRequest(msgspec.Struct, frozen=True):
    """The page that a client asks for."""

    offset: int
    count: int
    #: True if a token led here: the client follows the session and returns until it ends.
    follows: bool = False


@operation(
    "GET /audio_sessions/{session_id}/status",
    standby=True,
    origin="contract",
    key=SESSION_KEY,
    parameters=(
        SESSION,
        integer_query(OFFSET),
        integer_query(COUNT),
        AFTER,
        Parameter("next_token", "query", str, "The token of the earlier page.", example=""),
    ),
    answers=json_answer(
        "The state, and windows.",
        stream=SessionStatus("writable", SessionRefs(ID, 3), Sense(False, Page(2, 0, 2, TOKEN), EVENTS)),
        damaged=SessionStatus(
            "readonly", SessionRefs(ID, 1), Sense(False, Page(0, 0, 0), []), "the audio is not audio/mp3 as declared"
        ),
        headers=MODEL,
    ),
    faults=lambda: (
        fault_of(OFFSET.read, {"offset": "-1"}),
        fault_of(parse, "after", ID, "yesterday"),
        fault_of(PageTokens(bytes(16)).read, ID, "no-token"),
        NO_SUCH_SESSION,
        *BROKEN,
    ),
)
async def read_status(call: Call, context: SessionContext) -> Reply:
    """Read a page of windows.

    While audio waits for analysis and the page is empty, the answer waits up to {poll_seconds} s. If it is still empty,
    ask again. The last page of a closed stream also waits for the end of the analysis, and a page at the end of an open
    session waits if a `next_token` led there. `next_token` overrides the other parameters; following it page by page
    returns every window exactly once, in order. The last page has none. An empty `next_token` counts as absent.
    """
    session, view = await allowed_session(call, context)
    page = _page_request(call, context, session)
    check_known(view, page.offset)

    def complete(view: SessionView) -> bool:
        total = readable_windows(view)
        if view.head.ending and not view.standby and page.offset + page.count >= total:
            return False
        pending = not view.head.finished if page.follows else view.in_progress
        return total > page.offset or not pending

    view = await awaited_view(call, context, session, view, complete)
    return with_model(view, json_reply_of_bytes(_status(context, session, view, page)))


def with_model(view: SessionView, reply: Reply) -> Reply:
    """Name the model that scored the windows in a header, because the contract's bodies have no field for it."""
    if view.opened.model:
        reply.headers.append((b"earshot-model", view.opened.model.encode("ascii")))
    if view.opened.hearing.stands_in:
        reply.headers.append((b"earshot-note", STANDS_IN.encode("ascii")))
    return reply


def _page_request(call: Call, context: SessionContext, session: str) -> PageRequest:
    query = query_parameters(call.scope)
    if token := query.get("next_token"):
        return PageRequest(*context.tokens.read(session, token), follows=True)
    return PageRequest(offset_of(session, query), COUNT.read(query))


def offset_of(session: str, query: dict[str, str]) -> int:
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
        f'{{"state":"{head.state}",{error_member(head)}"refs":{{"session_id":"{session}","chunk_sequence":{head.next}}},'
        f'"inference":{{"in_progress":{BOOL[view.in_progress]},"page":{{"count":{end - page.offset},'
        f'"offset":{page.offset},"total":{total}{following}}},"results":['
    )
    events = context.renderer.events(session, view.opened, page.offset, end)
    return b"%s%s]}}" % (opening.encode("utf-8"), events)


def error_member(head: SessionHead) -> str:
    """Return the `error` member only for sessions with an error: some clients treat any `error`, even null, as one."""
    return "" if head.error is None else f'"error":{msgspec.json.encode(head.error).decode("utf-8")},'
