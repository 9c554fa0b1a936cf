"""A project's view and changes of itself: its key, its plan and its usage."""

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
    #: How long the audio of its jobs stays readable after their acceptance; None for the operator's default.
    keep_audio_seconds: int | None = None
    #: When a sound is on in the sessions that it opens.
    rules: ChosenRules = ChosenRules()
    #: What sounds are learnt from is kept with the windows of its sessions and jobs.
    keep_looks: bool = False


class DailyUsage(msgspec.Struct, frozen=True):
    """A project's use of one service on one day."""

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
        """Set how long audio of a project's jobs stays readable after acceptance; None is the operator's default.

        Jobs that were accepted before stay as they are.
        """

    async def choose_looks(self, project: str, kept: bool) -> None:
        """Set whether new sessions and jobs of a project keep what its own sounds are learnt from."""

    async def choose_rules(self, project: str, rules: ChosenRules) -> None:
        """Set when a sound is on in the sessions that a project opens from now on."""

    async def renew_key(self, key: str) -> str:
        """Revoke the live key of a project, given itself, and return the new one, which is never shown again.

        Raises:
            Unauthorized: it is not a live key of a project; a pass is none.
        """

    async def daily_usage(self, project: str, since: int, until: int) -> Sequence[DailyUsage]:
        """Return the usage between two times (milliseconds, the second excluded), by day and service."""

    async def note_used(self, digests: Sequence[bytes]) -> None:
        """Note that the keys with these digests are used now; ignore unknown ones."""
