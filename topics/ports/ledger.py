"""Lines of usage, and the ledger that stores them."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

import msgspec


class MeteredService(StrEnum):
    """Metered services: those of jobs (`topics.jobs.options.Service`), and live sessions."""

    SOUND = "sound_event_detection"
    SPEECH = "speech_analysis"
    INSIGHTS = "audio_insights"
    CAPTION = "caption"
    TRANSLATION = "translation"
    #: Sessions of all kinds: not a service of jobs, and without use of free seconds.
    SESSION = "audio_session"


class Charge(msgspec.Struct, frozen=True):
    """One line of the usage ledger; (job, service, step) is its key."""

    #: Id of the job or session.
    job: str
    service: MeteredService
    project: str
    organization: str
    audio_ms: int
    model: str
    #: Log time (Unix, ms) of the job's acceptance; its month (UTC) is billed. For a session: the opening, plus the
    #: audio of earlier steps.
    at_ms: int
    #: The number of a session's step: 0, 1, ...
    step: int = 0


class Ledger(Protocol):
    """The usage ledger."""

    async def record(self, charges: Sequence[Charge]) -> None:
        """Write all charges, or raise DirectoryDown and write none. Do not change existing lines."""
