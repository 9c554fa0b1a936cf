"""A project's access to its own key, plan, settings and usage."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from topics.ports.ledger import MeteredService
from topics.sessions.sounds import ChosenRules


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
    #: How long the audio of its jobs stays readable after acceptance; None for the operator's default.
    keep_audio_seconds: int | None = None
    #: The sound rules of its new sessions.
    rules: ChosenRules = ChosenRules()
    #: Whether its sessions and jobs keep the embeddings that sounds are learnt from.
    keep_looks: bool = False


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

    async def keep_audio(self, project: str, seconds: int | None) -> None:
        """Set how long audio of new jobs stays readable after acceptance; None for the operator's default."""

    async def choose_looks(self, project: str, kept: bool) -> None:
        """Set whether a project's new sessions and jobs keep the embeddings that own sounds are learnt from."""

    async def choose_rules(self, project: str, rules: ChosenRules) -> None:
        """Set the sound rules of a project's new sessions."""

    async def renew_key(self, key: str) -> str:
        """Revoke a project's live key `key` and return the new key, which is never shown again.

        Raises:
            Unauthorized: `key` is not a project's live key; a pass is not accepted.
        """

    async def daily_usage(self, project: str, since: int, until: int) -> Sequence[DailyUsage]:
        """Return the usage between two times (ms, the end excluded), by day and service."""

    async def note_used(self, digests: Sequence[bytes]) -> None:
        """Note that the keys with these digests are used now; ignore unknown ones."""
