"""Identifies the sender of a request for fair turns, before the next one of its connection is read."""

from collections.abc import Callable
from typing import Final

from starlette.types import Message, Scope

from app.http.addresses import customer
from app.http.bodies import BodyQuota
from app.http.call import Call
from app.identity.authentication import bearer, own_header
from app.identity.keys import Keyring
from topics.errors import EarshotError
from topics.keys import is_id
from topics.ports.directory import Principal
from topics.ports.sessions import Sessions

SenderOf = Callable[[Scope], str]
#: Nothing reads bodies here.
_NO_ROOM: Final = BodyQuota(0)


def sender_of(projects: Keyring[Principal], sessions: Sessions) -> SenderOf:
    """Return a function that identifies the sender of a request by its ASGI scope, without asking the database.

    The sender is the project of the key or of the session, else the client's address: inventing keys gains no turns.
    """

    def sender(scope: Scope) -> str:
        call = Call(scope, _no_body, _NO_ROOM)
        holder = projects.known(own_header(call, projects.kind) or bearer(call))
        if holder is not None:
            return holder.project
        session = scope.get("path_params", {}).get("session_id", "")
        try:
            view = sessions.view(session) if is_id(session) else None
        except EarshotError:  # Another node has the session.
            view = None
        return customer(call.address) if view is None else view.opened.project

    return sender


async def _no_body() -> Message:
    raise RuntimeError
