"""Operations of the vendor's later clients: results, one window at once, the sounds, and the client libraries."""

from typing import Final

from app.http.bodies import chunk_body
from app.http.call import Call
from app.http.descriptions import Answer, fault_of, integer_query, json_answer, json_body, operation
from app.http.queries import IntegerParameter, query_parameters
from app.http.replies import Reply, json_reply, json_reply_of_bytes
from app.sessions.answers import ClientVersions, LatestClient, OfficialTag, Prediction, SessionResults
from app.sessions.commands import (
    chunk_example,
    chunk_faults,
    idempotency_digest,
    naming_limit,
    opened_example,
    refusal,
    refused,
    verdict_on,
)
from app.sessions.cursors import parse
from app.sessions.examples import BASE64, EVENTS, ID
from app.sessions.reads import AFTER, BOOL, COUNT, MODEL, OFFSET, PAGE, error_member, offset_of, with_model
from app.sessions.rendering import check_known, readable_windows
from app.sessions.requests import PREDICT, PredictRequest, read_audio
from app.sessions.session_context import SessionContext
from app.sessions.waiting import NO_SUCH_SESSION, SESSION, SESSION_KEY, allowed_session, awaited_view, session_view
from app.shared_descriptions import BROKEN, IDEMPOTENCY_KEY
from topics.errors import BadRequest, Unavailable
from topics.ports.sessions import SessionView
from topics.sessions.records import Chunk
from topics.sessions.rules import SessionHead, SessionState

#: Supported versions of the public Python client library, newest last.
CLIENT_LIBRARIES: Final = ["1.0.9", "1.0.10", "1.0.11", "1.0.12", "1.0.13", "2.0.0", "2.0.1"]


#: Their name for the number of windows.
LIMIT: Final = IntegerParameter("limit", COUNT.text, PAGE, 1, PAGE)


@operation(
    "GET /audio_sessions/{session_id}/results",
    standby=True,
    origin="public-clients",
    key=SESSION_KEY,
    parameters=(SESSION, integer_query(OFFSET), AFTER, integer_query(LIMIT)),
    answers=json_answer("Windows, and the session's state.", done=SessionResults("done", EVENTS, False), headers=MODEL),
    faults=lambda: (
        fault_of(OFFSET.read, {"offset": "one"}),
        fault_of(parse, "after", ID, "yesterday"),
        NO_SUCH_SESSION,
        *BROKEN,
    ),
)
async def read_results(call: Call, context: SessionContext) -> Reply:
    """Read windows as later clients do.

    While a `readonly` session is being analysed, the answer waits up to {poll_seconds} s.
    """
    session, view = await allowed_session(call, context)
    query = query_parameters(call.scope)
    offset, limit = offset_of(session, query), LIMIT.read(query)
    check_known(view, offset)

    def complete(view: SessionView) -> bool:
        return view.head.finished or view.head.state is SessionState.WRITABLE

    view = await awaited_view(call, context, session, view, complete)
    total = readable_windows(view)
    end = max(offset, min(offset + limit, total))
    more = end < total or not view.head.finished
    opening = f'{{"state":"{_results_state(view.head)}",{error_member(view.head)}"has_more":{BOOL[more]},"data":['
    events = context.renderer.events(session, view.opened, offset, end)
    return with_model(view, json_reply_of_bytes(b"%s%s]}" % (opening.encode("utf-8"), events)))


@operation(
    "POST /audio_sessions/{session_id}/predict",
    origin="public-clients",
    key=SESSION_KEY,
    parameters=(SESSION, IDEMPOTENCY_KEY),
    bodies=json_body(window=PredictRequest(BASE64, 0), small=False),
    answers=json_answer("The window.", window=Prediction(EVENTS[0], 1)),
    faults=lambda: (
        refused(opened_example("file"), chunk_example(0, predict=True)),
        *chunk_faults(),
        not_in_time(0),
        *BROKEN,
    ),
)
async def predict(call: Call, context: SessionContext) -> Reply:
    """Analyse one window at once.

    An independent window, in a `stream` session without chunks. The answer waits up to {poll_seconds} s for its
    analysis, then is 503; the window is accepted all the same, and the status has it once it is done. The limits of
    chunks apply.
    """
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


def _results_state(head: SessionHead) -> str:
    if head.error is not None:
        return "error"
    if head.state is SessionState.WRITABLE:
        return "pending"
    return "done" if head.finished else "in-progress"


@operation(
    "GET /tags/official",
    origin="public-clients",
    answers={200: Answer("The sounds.", (list[OfficialTag],), {"two": [OfficialTag("dog_bark", "Dog_bark")]})},
    faults=(500,),
)
async def official_tags(call: Call, context: SessionContext) -> Reply:
    """List the sounds that can be recognised.

    Those of the model in use.
    """
    return json_reply([OfficialTag(tag.lower(), tag) for tag in context.sessions.official_tags()])


@operation(
    "GET /client-libraries/versions",
    origin="public-clients",
    answers=json_answer("Versions.", all=ClientVersions(CLIENT_LIBRARIES)),
)
async def client_versions(call: Call, context: SessionContext) -> Reply:
    """List the supported client libraries."""
    return json_reply(ClientVersions(CLIENT_LIBRARIES))


@operation(
    "GET /client-libraries/latest",
    origin="public-clients",
    answers=json_answer("The newest version.", newest=LatestClient(CLIENT_LIBRARIES[-1])),
)
async def latest_client(call: Call, context: SessionContext) -> Reply:
    """Read the newest client library."""
    return json_reply(LatestClient(CLIENT_LIBRARIES[-1]))
