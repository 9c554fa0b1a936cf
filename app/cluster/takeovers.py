"""Requests about sessions and jobs whose partitions move: they wait here for the new owners, whatever they ask for."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Protocol, TypeVar

from starlette.types import Scope

from app.http.call import Call
from app.http.holder_quota import HolderQuota, Places
from topics.errors import NotOwned, OwnerAway
from topics.turns import Holder

T = TypeVar("T")

#: Marks a forwarded request with the plan of the node that sent it. The receiving node answers it, and waits if it is
#: not the owner yet; if it has a newer plan, it forwards the request again. With `STANDBY` it answers at once, as the
#: owner or while that is away.
FORWARDED: Final = b"x-earshot-forwarded"
STANDBY: Final = b"standby"
#: How long a request waits, from its arrival.
WAIT_SECONDS: Final = 4.5
#: Requests that wait at a time, and those of one project.
WAITING: Final = 4096
PROJECT_WAITING: Final = 1024
FULL: Final = "its partition is moving, and too many requests wait for that"


class Placed(Protocol):
    """The sessions, or the jobs, of all nodes."""

    def owner(self, id: str, /) -> str | None:
        """Return the URL of the node that owns an id, None if it is this one or unknown."""

    def is_moving(self, id: str, /) -> bool:
        """Return whether the partition of an id has no owner yet that is known here."""

    def plan(self) -> bytes:
        """Return the version of the assignment of partitions to nodes; a greater one is newer."""

    async def owner_changed(self) -> None:
        """Return once any partition has another owner, or its owner begins or ceases to serve."""


class Host(Protocol):
    """The sessions, or the jobs, of this node."""

    def host(self) -> str | None:
        """Return the URL of another node for new ones; None if this one takes them, or knows no other."""


def host(call: Call, ids: Host) -> str | None:
    """Return the node that creates what a request asks for, None if it is this one."""
    return None if call.header(FORWARDED) else ids.host()


class Takeovers:
    """Finds the owners of ids, and lets requests wait for those of moving partitions. Loop only."""

    def __init__(self, sender: Callable[[Scope], Holder]) -> None:
        """`sender` identifies who sends a request, by its scope."""
        self._sender = sender
        organization = Places(WAITING // 2, FULL)
        self._places = HolderQuota(Places(PROJECT_WAITING, FULL), organization, Places(WAITING, FULL), 1)

    async def ask(
        self,
        call: Call,
        ids: Placed,
        id: str,
        ask: Callable[[str], Awaitable[T]],
        stand_in: Callable[[], Awaitable[T | None]] | None = None,
    ) -> T | None:
        """Return what the owner of an id answers to `ask`, which gets its URL; None if this node is the owner.

        If an owner is away, take what `stand_in` answers for it, or ask the next owner.

        Raises:
            NotOwned: another node has forwarded the request, and this one is not the owner.
            OwnerAway: the owner does not answer, and there is no other one.
            Unavailable: too many requests wait.
        """
        lost = None
        while True:
            now = ids.owner(id)
            is_away = ids.is_moving(id) if now is None else now == lost
            if is_away and stand_in is not None and (answer := await stand_in()) is not None:
                return answer
            if (owner := await self._owner(call, ids, id, lost)) is None:
                return None
            call.owner = owner
            try:
                return await ask(owner)
            except OwnerAway:
                lost = owner
                if _now() >= _give_up_at(call):
                    if stand_in is None or (answer := await stand_in()) is None:
                        raise
                    return answer

    async def _owner(self, call: Call, ids: Placed, id: str, lost: str | None) -> str | None:
        """Return the node to ask, None if it is this one; wait if the partition moves, or its owner is `lost`."""
        if (owner := ids.owner(id)) is None and not ids.is_moving(id):
            return None
        plan = call.header(FORWARDED)

        def is_ours() -> bool:
            return plan != b"" and plan >= ids.plan()

        def moves() -> bool:
            now = ids.owner(id)
            return ids.is_moving(id) if now is None else is_ours() or now == lost

        give_up_at = _give_up_at(call)
        if moves():
            with self._places.place(self._sender(call.scope)), suppress(TimeoutError):
                async with asyncio.timeout_at(give_up_at):
                    while moves():
                        await ids.owner_changed()
        if (owner := ids.owner(id)) is not None and is_ours():
            raise NotOwned("another node owns it")
        return owner


def _now() -> float:
    return asyncio.get_running_loop().time()


def _give_up_at(call: Call) -> float:
    """Return the loop's time at which a request waits no longer."""
    if call.give_up_at is None:
        call.give_up_at = _now() + WAIT_SECONDS
    return call.give_up_at
