"""Reads that wait for a session to change, without polling and without outliving their client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from app.http.bodies import ClientGone, hung_up
from app.http.operation import Call
from topics.errors import NotFound
from topics.ports.follower import Follower
from topics.ports.sessions import SessionView

T = TypeVar("T")


def current(call: Call, session: str) -> SessionView:
    """Return the session as it is.

    Raises:
        NotFound: it does not exist or was deleted.
    """
    view = call.edge.sessions.view(session)
    if view is None:
        raise NotFound("the session does not exist or was deleted")
    return view


async def settled(call: Call, session: str, enough: Callable[[SessionView], bool]) -> SessionView:
    """Return the session once `enough` of it is there, or as it is when the deployment's waiting time is over.

    Raises:
        NotFound: it does not exist, or was deleted meanwhile.
        ClientGone: the client hung up while waiting.
        Unavailable: the partition went to another node.
    """
    view = current(call, session)
    if enough(view):
        return view
    follower = call.edge.sessions.follow(session)
    gone = asyncio.create_task(hung_up(call.receive))
    try:
        return await _followed(call, session, enough, follower, gone)
    finally:
        gone.cancel()
        follower.close()


async def _followed(
    call: Call, session: str, enough: Callable[[SessionView], bool], follower: Follower, gone: asyncio.Task[None]
) -> SessionView:
    clock = asyncio.get_running_loop().time
    deadline = clock() + call.edge.options.poll_seconds
    # The follower was registered before this reading, so a change in between is not missed.
    while not enough(view := current(call, session)) and (left := deadline - clock()) > 0:
        changed = asyncio.create_task(follower.changed(left))
        try:
            await asyncio.wait((changed, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
        if gone.done():
            raise ClientGone
        await changed
    return view
