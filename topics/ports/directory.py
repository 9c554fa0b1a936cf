"""The control plane's knowledge of keys."""

from typing import Final, Protocol

import msgspec

from topics.choices import Choices
from topics.hearing import OwnSound


class Principal(msgspec.Struct, frozen=True):
    """The project behind a key, and its settings."""

    project: str
    organization: str
    #: Limit on seconds of analysed audio per calendar month (UTC), None for no limit.
    free_seconds: int | None = None
    choices: Choices = Choices()
    #: Its own sounds, which new sessions and jobs report besides the tags of the model.
    own: tuple[OwnSound, ...] = ()


#: How long a link to a recording works.
AUDIO_LINK_SECONDS: Final = 3600


class AudioLink(msgspec.Struct, frozen=True):
    """The target of a link to a recording."""

    project: str
    organization: str
    job: str
    #: Milliseconds since 1970, UTC.
    ends_at: int


class Directory(Protocol):
    """Tells the edge who holds a key, and whether a project has free seconds left.

    Every call may raise DirectoryDown.
    """

    async def exhausted(self, principal: Principal) -> bool:
        """Return whether the project has used its free seconds of this month."""

    async def project(self, key: str) -> Principal | None:
        """Return the holder of a project key, or None if it is unknown or rotated."""

    async def organization(self, key: str) -> str | None:
        """Return the organization of an organization key, or None if it is unknown or rotated."""

    async def link_audio(self, key: str, job: str) -> str | None:
        """Return the token of a new link to the recording of a job, None if the key has ended.

        `key` is the project's key or a session token; the link ends with it.
        """

    async def audio_link(self, token: str) -> AudioLink | None:
        """Return the target of a link, or None if it has expired."""
