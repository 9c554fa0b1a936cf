"""Whom a key speaks for, as the control plane knows it."""

from typing import Protocol

import msgspec

from topics.hearing import OwnSounds
from topics.sessions.sounds import ChosenRules


class Principal(msgspec.Struct, frozen=True):
    """Whom a project key speaks for."""

    project: str
    organization: str
    #: Seconds of audio that the project may have analysed in a calendar month (UTC), None for any amount.
    free_seconds: int | None = None
    #: How long the audio of its jobs stays readable after their acceptance; None for the operator's default.
    keep_audio_seconds: int | None = None
    #: When a sound is on in the sessions that it opens.
    rules: ChosenRules = ChosenRules()
    #: What its sessions and jobs hear beside the tags of the model.
    own: OwnSounds = OwnSounds()


class AudioLink(msgspec.Struct, frozen=True):
    """What a link to a recording opens."""

    project: str
    job: str
    #: Milliseconds since 1970, UTC.
    ends_at: int


class Directory(Protocol):
    """The control plane's answers to the edge: who holds a key, and has the project any free seconds left?

    Every call may raise DirectoryDown.
    """

    async def exhausted(self, principal: Principal) -> bool:
        """Return True when the project's free seconds of this month are spent."""

    async def project(self, key: str) -> Principal | None:
        """Return the holder of a project key, or None if it is unknown or rotated."""

    async def organization(self, key: str) -> str | None:
        """Return the organization that an organization key belongs to; None if it is unknown or rotated."""

    async def link_audio(self, principal: Principal, job: str) -> str | None:
        """Return the token of a new link to the recording of a job, None if the project has no key."""

    async def audio_link(self, token: str) -> AudioLink | None:
        """Return what a link opens, or None if it has ended."""
