"""A project's view of itself."""

from collections.abc import Mapping
from datetime import date, datetime
from typing import TypedDict

import msgspec

from ._session_values import SoundRule


class ProjectKey(msgspec.Struct, frozen=True):
    """The live key of a project: its first and last characters, when it was made, and when it was last used."""

    shown_as: str
    created_at: datetime
    last_used_at: datetime | None = None


class ProjectChoices(TypedDict, total=False):
    """What a project chooses for its new jobs and sessions.

    Attributes:
        keep_audio_seconds: how long the audio of a job is kept after its acceptance, at most
            `Project.longest_keep_audio_seconds`; 0: until the job is done, None: the service's default.
        sound_rule: when a sound is on in sessions without a rule of their own; None for the service's rule.
        sound_rules: the same for single sounds, by name; they replace all earlier ones.
        keep_embeddings: whether windows keep what own sounds are learnt from: 192 numbers each, and no audio.
    """

    keep_audio_seconds: int | None
    sound_rule: SoundRule | None
    sound_rules: Mapping[str, SoundRule]
    keep_embeddings: bool


class Project(msgspec.Struct, frozen=True):
    """A project; its choices are as in `ProjectChoices`.

    Attributes:
        free_seconds: seconds of audio that its jobs may have analysed in a month (UTC); None for any amount.
        used_seconds: seconds used in this month.
        default_keep_audio_seconds: the value that applies if nobody has chosen.
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
