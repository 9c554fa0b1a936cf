"""What a project may see and change of itself: its key, its plan and its usage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from topics.ports.ledger import MeteredService
from topics.sessions.sounds import ChosenRules


class ProjectKey(msgspec.Struct, frozen=True):
    """The live key of a project, as far as it may be shown; times are milliseconds since 1970, UTC."""

    #: Its first and last characters.
    shown: str
    created_at: int
    #: To the minute; None when it was not used since this is noted.
    last_used_at: int | None


class ProjectAccount(msgspec.Struct, frozen=True):
    """A project as its key's holder sees it."""

    id: str
    name: str
    #: Name.
    organization: str
    created_at: int
    key: ProjectKey
    #: Seconds of audio in a calendar month (UTC), None for any amount, and what jobs have used of them.
    free_seconds: int | None
    used_ms: int
    #: How long the audio of its jobs stays readable after their acceptance, None for what the operator has set.
    keep_audio_seconds: int | None = None
    #: When a sound is on in the sessions that it opens.
    rules: ChosenRules = ChosenRules()


class DailyUsage(msgspec.Struct, frozen=True):
    """What a project used of one service on one day."""

    #: "YYYY-MM-DD", UTC.
    day: str
    service: MeteredService
    #: Jobs, or sessions.
    jobs: int
    audio_ms: int


class Projects(Protocol):
    """Projects by id. Every call may raise DirectoryDown; a project that does not exist raises NotFound."""

    async def account(self, project: str) -> ProjectAccount:
        """Return a project, its key and what it used this month."""

    async def keep_audio(self, project: str, seconds: int | None) -> None:
        """Set how long the audio of a project's jobs stays readable after their acceptance.

        None is for what the operator has set. Jobs that were accepted before are kept as they were to be.
        """

    async def choose_rules(self, project: str, rules: ChosenRules) -> None:
        """Set when a sound is on in the sessions that a project opens from now on."""

    async def renew_key(self, key: str) -> str:
        """Revoke the live key of a project, given itself, and return the new one, which nothing shows again.

        Raises:
            Unauthorized: it is no live key of a project; a pass is none.
        """

    async def daily_usage(self, project: str, since: int, until: int) -> Sequence[DailyUsage]:
        """Return what was used between two times (milliseconds, the second excluded), by day and service."""

    async def note_used(self, digests: Sequence[bytes]) -> None:
        """Note that the keys with these digests are used now; those that are unknown are left alone."""
