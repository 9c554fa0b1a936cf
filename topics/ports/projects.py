"""A project's access to its own key, plan, settings and usage."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from topics.choices import Choices
from topics.ports.ledger import MeteredService


class ProjectKey(msgspec.Struct, frozen=True):
    """The visible part of a project's live key; times are milliseconds since 1970, UTC."""

    #: Its first and last characters.
    shown: str
    created_at: int
    #: To the minute; None if no use was noted.
    last_used_at: int | None


class ProjectAccount(msgspec.Struct, frozen=True):
    """A project, for the holder of its key."""

    id: str
    name: str
    #: Name.
    organization: str
    created_at: int
    key: ProjectKey
    #: Limit on seconds of audio per calendar month (UTC), None for no limit; below, the use by jobs.
    free_seconds: int | None
    used_ms: int
    choices: Choices = Choices()


class DailyUsage(msgspec.Struct, frozen=True):
    """A project's use of one service on one day."""

    #: "YYYY-MM-DD", UTC.
    day: str
    service: MeteredService
    #: Number of jobs or sessions.
    jobs: int
    audio_ms: int


class Projects(Protocol):
    """Reads and changes projects by id. Every call may raise DirectoryDown; an unknown project raises NotFound."""

    async def account(self, project: str) -> ProjectAccount:
        """Return a project, its key and its usage of this month."""

    async def choose(self, project: str, change: Mapping[str, Any]) -> None:
        """Set fields of a project's `Choices` for its new sessions and jobs: all of them, or none."""

    async def renew_key(self, key: str) -> str:
        """Revoke a project's live key `key` and return the new key, which is never shown again.

        Raises:
            Unauthorized: `key` is not a project's live key; a pass is not accepted.
        """

    async def daily_usage(self, project: str, since: int, until: int) -> Sequence[DailyUsage]:
        """Return the usage between two times (ms, the end excluded), by day and service."""

    async def note_used(self, digests: Sequence[bytes]) -> None:
        """Note that the keys with these digests are used now; ignore unknown ones."""
