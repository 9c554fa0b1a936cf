"""The list of a project's sessions."""

from msgspec import UNSET, UnsetType

from app.cluster.lists import MissingPart
from app.http.call import Call
from app.http.replies import Reply
from app.sessions.answers import SessionEntry, SessionPage, SourceFault
from app.sessions.examples import DAMAGED, LIST_TOKEN, LISTED
from app.sessions.session_context import SessionContext
from app.sessions.socket_messages import shown_state
from app.shared_descriptions import listing
from topics.geometry import seconds
from topics.ports.sessions import SessionView
from topics.sessions.rules import LISTED_STATES, SessionHead, SessionState
from topics.times import iso_time


@listing(
    "GET /audio_sessions/ /audio_sessions",
    "sessions",
    LISTED_STATES,
    first=SessionPage([LISTED], LIST_TOKEN),
    last=SessionPage([DAMAGED]),
    incomplete=SessionPage([LISTED], missing=MissingPart(21, 64)),
)
async def list_sessions(call: Call, context: SessionContext) -> Reply:
    """List the sessions.

    The sessions of the project, newest first.
    """
    principal = await context.project_keys.authenticate(call)
    return await context.list.page(call, principal.project)


def listed_session(time_ms: int, session: str, view: SessionView) -> SessionEntry:
    """Return the list entry of a session."""
    opened, head = view.opened, view.head
    return SessionEntry(
        session_id=session,
        state=shown_state(head.state),
        type=opened.kind,
        content_type=opened.content_type,
        # Early versions did not record the opening time.
        created_at=iso_time(time_ms) if time_ms else None,
        updated_at=iso_time(head.touched),
        file_name=opened.file_name,
        seconds=seconds(opened.audio_ms(head.windows, bool(head.predicts))),
        in_progress=head.in_progress,
        # Some clients treat any `error`, even null, as an error.
        error=UNSET if head.error is None else head.error,
        metadata=opened.metadata or UNSET,
        source=_source_fault(head),
    )


def _source_fault(head: SessionHead) -> SourceFault | UnsetType:
    """Return what is wrong with the source of an open session."""
    source = head.source
    if source is None or source.event == "source.back" or head.state is not SessionState.WRITABLE:
        return UNSET
    return SourceFault("lost" if source.event == "source.lost" else "silent", iso_time(source.at_ms))
