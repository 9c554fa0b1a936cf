"""Identifies the sender of a request for fair turns."""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from starlette.types import Message, Scope

from app.http.bodies import BodyQuota
from app.http.call import HOLDER, Call
from app.http.turns import holder_of, stranger
from app.identity.authentication import bearer, own_header
from app.identity.keys import Keyring
from topics.errors import EarshotError
from topics.keys import is_id
from topics.ports.directory import Principal
from topics.ports.jobs import Jobs
from topics.ports.sessions import Sessions
from topics.turns import Holder

SenderOf = Callable[[Scope], Holder]
#: Nothing reads bodies here.
_NO_ROOM: Final = BodyQuota(0)


def sender_of(projects: Keyring[Principal], organizations: Keyring[str], sessions: Sessions, jobs: Jobs) -> SenderOf:
    """Return a function that identifies the sender of a request by its ASGI scope, without asking the database.

    The sender is the holder of the key or of the session or job, else the client's address: inventing keys gains no
    turns.
    """

    def sender(scope: Scope) -> Holder:
        holder: Holder | None = scope.get(HOLDER)
        if holder is not None:
            return holder
        call, subjects = Call(scope, _no_body, _NO_ROOM), scope.get("path_params", {})
        session, job = subjects.get("session_id", ""), subjects.get("job_id", "")
        principal = projects.known(own_header(call, projects.kind) or bearer(call))
        if principal is not None:
            return Holder(principal.organization, principal.project, session or job)
        if (organization := organizations.known(own_header(call, organizations.kind))) is not None:
            return Holder(organization, "")
        with suppress(EarshotError):  # Another node has it.
            if is_id(session) and (view := sessions.view(session)) is not None:
                return holder_of(view.opened, session)
            if is_id(job) and (task := jobs.view(job)) is not None:
                return holder_of(task.accepted, job)
        return stranger(call.address)

    return sender


async def _no_body() -> Message:
    raise RuntimeError
