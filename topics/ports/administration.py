"""Organizations, projects, their plans and their usage, as operators see and change them."""

from collections.abc import AsyncGenerator, Sequence
from typing import Final, Protocol

import msgspec

from topics.ports.ledger import Charge, MeteredService

#: Characters.
LONGEST_NAME: Final = 40
#: Longest plan in seconds; the bound keeps milliseconds within 64 bits.
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
    """Which usage is asked for; None is all of it."""

    #: Ids or names; ids also of deleted ones, whose usage stays.
    organization: str | None = None
    project: str | None = None
    service: MeteredService | None = None
    #: "YYYY-MM", UTC.
    month: str | None = None


class Administration(Protocol):
    """The operator's actions, in this process on the database or in another one over HTTP.

    Arguments name an organization or a project by id or, where that is clear, by name. Every call may raise
    DirectoryDown. An id or name that does not exist raises NotFound; a name that is ambiguous, taken, or not 1 to 40
    printable characters raises BadRequest. Keys are returned once: only their digests are stored.
    """

    async def create_organization(self, name: str) -> tuple[Organization, str]: ...

    async def organizations(self) -> Sequence[Organization]:
        """Return all organizations by name."""

    async def rotate_organization_key(self, organization: str) -> str:
        """Revoke an organization's key and return its new one."""

    async def delete_organization(self, organization: str) -> None:
        """Delete an organization, its projects, their keys, and its speakers with their voices."""

    async def create_project(self, name: str, organization: str | None = None) -> tuple[Project, str]:
        """Make a project, in the only organization there is unless one is named; return it and its key."""

    async def projects(self, organization: str | None = None) -> Sequence[Project]:
        """Return the projects, all of them or an organization's, by name."""

    async def rotate_project_key(self, project: str) -> str:
        """Revoke a project's key and return its new one."""

    async def plan(self, project: str, free_seconds: int | None) -> None:
        """Set how many seconds of audio a project may have analysed in a month, None for any amount.

        Nodes remember whom a key speaks for, so it takes up to `EARSHOT_KEY_CACHE_SECONDS` until all of them know.
        """

    async def delete_project(self, project: str) -> None: ...

    async def totals(self, period: UsageFilter) -> Sequence[UsageTotal]:
        """Return the usage by month, project and service."""

    def lines(self, period: UsageFilter) -> AsyncGenerator[Sequence[Charge], None]:
        """Yield the single lines of the ledger, some at a time, in order of time.

        One that is written meanwhile may be missing.
        """


class LocalAdministration(Administration, Protocol):
    """An administration in the process of an edge, which must know whose keys a change concerns."""

    async def find_organization(self, organization: str) -> str: ...

    async def find_project(self, project: str) -> str: ...
