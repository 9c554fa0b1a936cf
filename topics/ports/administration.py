"""Operators' access to organizations, projects, plans and usage."""

from collections.abc import AsyncGenerator, Sequence
from typing import Final, Protocol

import msgspec

from topics.ports.ledger import Charge, MeteredService

#: Characters.
LONGEST_NAME: Final = 40
#: Largest plan in seconds, so that milliseconds fit 64 bits.
MOST_SECONDS: Final = 10**12


class Organization(msgspec.Struct, frozen=True):
    """An organization; `key` is what may be shown of its live key, None when it has none."""

    id: str
    name: str
    #: Milliseconds since 1970, UTC.
    created_at: int
    key: str | None = None


class Project(msgspec.Struct, frozen=True):
    """A project; `organization` is an id, the rest as in `Organization`."""

    id: str
    name: str
    organization: str
    created_at: int
    key: str | None = None
    #: Seconds of audio in a calendar month (UTC), None for any amount.
    free_seconds: int | None = None


class UsageTotal(msgspec.Struct, frozen=True):
    """A project's use of one service in one month."""

    month: str
    #: Id.
    project: str
    #: None once the project was deleted.
    name: str | None
    #: Id.
    organization: str
    service: MeteredService
    #: Jobs, or sessions.
    jobs: int
    audio_ms: int
    #: Names, sorted.
    models: tuple[str, ...]


class UsageFilter(msgspec.Struct, frozen=True):
    """A filter of usage; None fields match everything."""

    #: Ids or names; ids also match deleted organizations and projects, whose usage stays.
    organization: str | None = None
    project: str | None = None
    service: MeteredService | None = None
    #: "YYYY-MM", UTC.
    month: str | None = None


class Administration(Protocol):
    """Performs the operator's actions, on the database or over HTTP in another process.

    Arguments name an organization or project by id or by unambiguous name. Every call may raise DirectoryDown. An
    unknown id or name raises NotFound; a name that is ambiguous, taken, or not 1 to 40 printable characters raises
    BadRequest. Keys are returned once: only their digests are stored.
    """

    async def create_organization(self, name: str) -> tuple[Organization, str]: ...

    async def organizations(self) -> Sequence[Organization]:
        """Return all organizations, sorted by name."""

    async def rotate_organization_key(self, organization: str) -> str:
        """Revoke an organization's key and return its new one."""

    async def delete_organization(self, organization: str) -> None:
        """Delete an organization, its projects as `delete_project` does, and its speakers with their voices."""

    async def create_project(self, name: str, organization: str | None = None) -> tuple[Project, str]:
        """Create a project, by default in the only organization; return it and its key."""

    async def projects(self, organization: str | None = None) -> Sequence[Project]:
        """Return all projects, or an organization's, sorted by name."""

    async def rotate_project_key(self, project: str) -> str:
        """Revoke a project's key and return its new one."""

    async def plan(self, project: str, free_seconds: int | None) -> None:
        """Set a project's limit on seconds of analysed audio per month, None for no limit.

        Nodes cache keys, so all apply the change only after up to `EARSHOT_KEY_CACHE_SECONDS`.
        """

    async def delete_project(self, project: str) -> None:
        """Delete a project, its key and own sounds; the nodes then delete its sessions and jobs."""

    async def totals(self, period: UsageFilter) -> Sequence[UsageTotal]:
        """Return the usage by month, project and service."""

    def lines(self, period: UsageFilter) -> AsyncGenerator[Sequence[Charge], None]:
        """Yield the lines of the ledger in batches, in order of time; lines written meanwhile may be missing."""


class LocalAdministration(Administration, Protocol):
    """An administration in the process of an edge, which must find out whose keys a change affects."""

    async def find_organization(self, organization: str) -> str: ...

    async def find_project(self, project: str) -> str: ...
