"""A project's view of itself."""

from collections.abc import Mapping
from datetime import date, datetime

import msgspec

from ._session_values import SoundRule


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
        sound_rule: when a sound is on in sessions without a rule of their own; None for the service's rule.
        sound_rules: the same for single sounds, by name.
        keep_embeddings: True if new sessions and jobs keep what own sounds are learnt from.
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
    sound_rule: SoundRule | None = None
    sound_rules: Mapping[str, SoundRule] = {}
    keep_embeddings: bool = False


class DailyUsage(msgspec.Struct, frozen=True):
    """The use of one service on one day (UTC).

    Attributes:
        service: of a job, such as `speech_analysis`; or `audio_session`.
        jobs: number of jobs, or of sessions.
        seconds: seconds of audio.
    """

    day: date
    service: str
    jobs: int
    seconds: float
