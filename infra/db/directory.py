"""Looks up holders of keys and their plans in the control plane's database, in bounded time."""

import asyncio
import math
import time
from collections.abc import Callable, Coroutine
from typing import Final, TypeVar

from infra.db.accounts import Accounts
from infra.db.database import Database
from topics import apikeys
from topics.errors import DirectoryDown
from topics.ports.directory import AudioLink, Principal

T = TypeVar("T")

ANSWER_SECONDS: Final = 2.0
#: Only a first start chooses keys, perhaps on another node; this node knows them after this time.
CHOSEN_SECONDS: Final = 5.0


class SqlDirectory:
    """Implements the port `Directory`. It caches no keys, so a revoked key is refused at once.

    Every call raises DirectoryDown if the database fails or does not answer in time.
    """

    def __init__(
        self, database: Database, timeout: float = ANSWER_SECONDS, clock: Callable[[], float] = time.time
    ) -> None:
        """Answer within `timeout` seconds; session tokens count as their keys."""
        self._accounts = Accounts(database, clock)
        self._timeout = timeout
        self._clock = clock
        self._chosen: frozenset[bytes] = frozenset()
        self._chosen_at = -math.inf

    async def project(self, key: str) -> Principal | None:
        """Return the holder of a project key, or None if it is unknown or rotated; mistyped keys are not looked up."""
        return await self._owner(key, self._accounts.project_of)

    async def organization(self, key: str) -> str | None:
        """Return the organization of an organization key, or None if the key is unknown or rotated."""
        return await self._owner(key, self._accounts.organization_of)

    async def link_audio(self, key: str, job: str) -> str | None:
        return await self._answer(self._accounts.link_audio(key, job), "the database does not answer")

    async def audio_link(self, token: str) -> AudioLink | None:
        """Return what a link to a recording opens, or None if it has expired; mistyped links are not looked up."""
        if not apikeys.well_formed(token):
            return None
        return await self._answer(self._accounts.audio_link(token), "link verification failed")

    async def exhausted(self, principal: Principal) -> bool:
        return await self._answer(self._accounts.exhausted(principal), "the usage of this month cannot be read")

    async def _owner(self, key: str, owner: Callable[[str], Coroutine[object, None, T | None]]) -> T | None:
        ours = apikeys.well_formed(key)
        known = ours or (ours is None and apikeys.digest(key) in await self._chosen_keys())
        if not known:
            return None
        return await self._answer(owner(key), "API key verification failed")

    async def _chosen_keys(self) -> frozenset[bytes]:
        """Return the digests of all chosen keys, cached so that a flood of random keys costs one query."""
        now = self._clock()
        if not now - CHOSEN_SECONDS < self._chosen_at <= now:
            self._chosen = await self._answer(self._accounts.chosen_keys(), "API key verification failed")
            self._chosen_at = now
        return self._chosen

    async def _answer(self, question: Coroutine[object, None, T], failure: str) -> T:
        lookup = asyncio.create_task(question)
        lookup.add_done_callback(_note)
        try:
            # `asyncio.timeout` would wait for the cancelled driver to close its connection to a silent server.
            done, _ = await asyncio.wait({lookup}, timeout=self._timeout)
            if not done:
                raise TimeoutError
            return lookup.result()
        # Whatever failed, the caller can only report that there is no answer.
        except Exception as error:
            raise DirectoryDown(failure) from error
        finally:
            lookup.cancel()


def _note(lookup: asyncio.Task[T]) -> None:
    """Retrieve the outcome of a late look-up, so that asyncio does not log it as lost."""
    if not lookup.cancelled():
        lookup.exception()
