"""A project's view of itself."""

from datetime import datetime

import msgspec


class ProjectKey(msgspec.Struct, frozen=True):
    """The live key of a project: its first and last characters, when it was made, and when it was last used."""

    shown_as: str
    created_at: datetime
    last_used_at: datetime | None = None


class Project(msgspec.Struct, frozen=True):
    """A project.

    Attributes:
        free_seconds: seconds of audio that its jobs may have analysed in a month (UTC); None for any amount.
        used_seconds: seconds used in this month.
        keep_audio_seconds: how long the audio of a job is kept after its acceptance; None if nobody has chosen.
        default_keep_audio_seconds: the value that applies then.
        longest_keep_audio_seconds: the longest that can be chosen.
    """

    id: str
    name: str
    organization: str
    created_at: datetime
    key: ProjectKey
    free_seconds: int | None
    used_seconds: float
    keep_audio_seconds: int | None
    default_keep_audio_seconds: int
    longest_keep_audio_seconds: int
