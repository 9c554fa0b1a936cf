"""Reads that wait for a session to change, without polling and without outliving their client."""

import asyncio
from collections.abc import Callable

from app.http.bodies import wait_for_disconnect
from app.http.call import Call
from app.http.errors import ClientGone
from app.sessions.session_context import SessionContext
from topics.errors import NotFound
from topics.keys import is_id
from topics.ports.follower import Follower
from topics.ports.sessions import SessionView

NO_SESSION = "the session does not exist or was deleted"


def session_id(call: Call) -> str:
    """Return the session id in the path.

    Raises:
        NotFound: it is malformed, so there is no such session.
    """
    session = call.path("session_id")
    if not is_id(session):
        raise NotFound(NO_SESSION)
    return session


async def allowed_session(call: Call, context: SessionContext) -> str:
    """Return the session id in the path, if the caller has its project's key or the deployment requires none.

    Raises:
        Unauthorized, DirectoryDown: a key is required, and is invalid or cannot be verified.
        NotFound: there is no such session, or another project has it.
    """
    if not context.need_key:
        return session_id(call)
    principal = await context.project_keys.authenticate(call)
    session = session_id(call)
    if session_view(context, session).opened.project != principal.project:
        raise NotFound(NO_SESSION)
    return session


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
    call: Call, context: SessionContext, session: str, complete: Callable[[SessionView], bool]
) -> SessionView:
    """Return the session once it is `complete`, or its current state when the deployment's waiting time is over.

    Raises:
        NotFound: it does not exist, or was deleted meanwhile.
        ClientGone: the client hung up while waiting.
        Unavailable: the partition moved to another node.
    """
    view = session_view(context, session)
    if complete(view):
        return view
    follower = context.sessions.follow(session)
    # One task besides the reader's own, and none per change: a live stream changes twice with every chunk.
    disconnect, reading = asyncio.create_task(wait_for_disconnect(call.receive)), asyncio.timeout(None)
    disconnect.add_done_callback(stop := lambda _: reading.reschedule(0))
    try:
        async with reading:
            return await _followed_view(context, session, complete, follower)
    except TimeoutError:
        raise ClientGone from None
    finally:
        disconnect.remove_done_callback(stop)
        disconnect.cancel()
        follower.close()


async def _followed_view(
    context: SessionContext, session: str, complete: Callable[[SessionView], bool], follower: Follower
) -> SessionView:
    clock = asyncio.get_running_loop().time
    deadline = clock() + context.poll_seconds
    # The follower was registered before this reading, so no change in between is missed.
    while not complete(view := session_view(context, session)) and (seconds := deadline - clock()) > 0:
        await follower.changed(seconds)
    return view
