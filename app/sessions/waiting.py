"""Reads that wait for a session to change, without polling and without outliving their client."""

import asyncio
from collections.abc import Callable
from typing import Final

from app.http.bodies import wait_for_disconnect
from app.http.call import HOLDER, Call
from app.http.descriptions import Key, Parameter
from app.http.errors import ClientGone
from app.http.turns import holder_of
from app.sessions.answers import SessionId
from app.sessions.examples import ID
from app.sessions.session_context import SessionContext
from topics.errors import NotFound, Unavailable
from topics.keys import is_id
from topics.ports.sessions import SessionView

NO_SESSION = "the session does not exist or was deleted"
MOVED = "this node no longer serves it: ask again"
NO_SUCH_SESSION: Final = NotFound(NO_SESSION)
#: The key that requests about a session need besides its id, if the deployment requires one.
SESSION_KEY: Final = Key("projectKey", only_with="sessions_need_key")
SESSION: Final = Parameter("session_id", "path", SessionId, "The session.", required=True, example=ID)


def session_id(call: Call) -> str:
    """Return the session id in the path.

    Raises:
        NotFound: it is malformed, so there is no such session.
    """
    session = call.path("session_id")
    if not is_id(session):
        raise NotFound(NO_SESSION)
    return session


async def allowed_session(call: Call, context: SessionContext) -> tuple[str, SessionView]:
    """Return the session in the path, if the caller has its project's key or the deployment requires none.

    Call it before any other check: all requests for a deleted session get 404, whatever else is wrong.

    Raises:
        Unauthorized, DirectoryDown: a key is required, and is invalid or cannot be verified.
        NotFound: there is no such session, or another project has it.
    """
    needs_key = context.options.sessions_need_key
    principal = await context.project_keys.authenticate(call) if needs_key else None
    session = session_id(call)
    view = session_view(context, session)
    if principal is not None and view.opened.project != principal.project:
        raise NotFound(NO_SESSION)
    call.scope[HOLDER] = holder_of(view.opened, session)
    return session, view


def session_view(context: SessionContext, session: str) -> SessionView:
    """Return the current view of the session.

    Raises:
        NotFound: it does not exist or was deleted.
    """
    view = context.sessions.view(session)
    if view is None:
        raise NotFound(NO_SESSION)
    return view


async def awaited_view(
    call: Call, context: SessionContext, session: str, view: SessionView, complete: Callable[[SessionView], bool]
) -> SessionView:
    """Return the session once it is `complete`, or its current state when the deployment's waiting time is over.

    `view` is its state now.

    Raises:
        NotFound: it does not exist, or was deleted meanwhile.
        ClientGone: the client hung up while waiting.
        Unavailable: the partition moved to another node.
    """
    if complete(view):
        return view
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[SessionView] = loop.create_future()

    def check(lost: bool = False, at_last: bool = False) -> None:
        """Answer if it is time. The reader's own task wakes up once; a live stream changes twice with every chunk."""
        if answer.done():
            return
        try:
            if lost:
                raise Unavailable(MOVED)
            view = session_view(context, session)
            if at_last or complete(view):
                answer.set_result(view)
        except Exception as error:
            answer.set_exception(error)

    def leave(_: asyncio.Future[None]) -> None:
        if not answer.done():
            answer.set_exception(ClientGone())

    subscription = context.sessions.subscribe(session, check)
    late = loop.call_later(context.options.poll_seconds, check, False, True)
    disconnect = asyncio.create_task(wait_for_disconnect(call.receive))
    disconnect.add_done_callback(leave)
    try:
        check()  # The first reading was before the subscription.
        return await answer
    finally:
        disconnect.remove_done_callback(leave)
        disconnect.cancel()
        late.cancel()
        subscription.close()
