"""What a project sees of itself."""

from __future__ import annotations

from datetime import datetime

import msgspec


class ProjectKey(msgspec.Struct, frozen=True):
    """The live key of a project: its first and last characters, when it was made, and when it was used last."""

    shown_as: str
    created_at: datetime
    last_used_at: datetime | None = None


class AudioKeeping(msgspec.Struct, frozen=True):
    """For how many seconds after its acceptance the audio of a job is kept.

    Attributes:
        seconds: the project's own choice, None where it has made none.
        default_seconds: what holds without one.
        longest_seconds: the longest that can be chosen.
    """

    seconds: int | None
    default_seconds: int
    longest_seconds: int


class Project(msgspec.Struct, frozen=True):
    """A project.

    Attributes:
        free_seconds: seconds of audio that its jobs may have analysed in a month (UTC), None for any amount.
        used_seconds: those that were used in this month.
        keep_audio: how long the audio of its jobs is kept.
    """

    id: str
    name: str
    organization: str
    created_at: datetime
    key: ProjectKey
    free_seconds: int | None
    used_seconds: float
    keep_audio: AudioKeeping
