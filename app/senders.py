"""Identifies the sender of a request for fair turns, before the request is served."""

from collections.abc import Callable, MutableMapping
from typing import Any

from app.http.addresses import customer
from app.identity.keys import Keyring
from topics.errors import EarshotError
from topics.keys import is_id
from topics.ports.directory import Principal
from topics.ports.sessions import Sessions


def sender_of(projects: Keyring[Principal], sessions: Sessions) -> Callable[[MutableMapping[str, Any]], str]:
    """Return a function that identifies the sender of a request by its ASGI scope, without asking the database.

    The sender is the project of the key or of the session, else the client's address: inventing keys gains no turns.
    """

    def sender(scope: MutableMapping[str, Any]) -> str:
        headers = dict(scope["headers"])
        bearer = headers.get(b"authorization", b"").removeprefix(b"Bearer ")
        holder = projects.known(headers.get(projects.kind.header, bearer).decode("latin-1"))
        if holder is not None:
            return holder.project
        try:
            session = scope.get("path_params", {}).get("session_id", "")
            view = sessions.view(session) if is_id(session) else None
        except EarshotError:  # Another node has the session.
            view = None
        return customer((scope.get("client") or ("",))[0]) if view is None else view.opened.project

    return sender
