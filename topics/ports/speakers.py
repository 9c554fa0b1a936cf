"""Registered speakers and their recognition."""

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from topics.errors import RuleBroken

#: Limit of speakers per organization.
MAX_SPEAKERS: Final = 50
#: Limit of samples per speaker.
MAX_SAMPLES: Final = 20


class Profile(msgspec.Struct, frozen=True):
    """A registered speaker."""

    name: str
    #: Milliseconds since 1970, UTC.
    created_at: int
    #: Total length of the voice samples in milliseconds.
    length_ms: int
    samples: int
    #: Whether the model in use embedded all samples; it cannot compare those of another model.
    compatible: bool
    #: What people call the speaker; None for the name.
    display_name: str | None = None


class SpeakerTurn(msgspec.Struct, frozen=True):
    """One uninterrupted turn of a speaker; times in milliseconds from the start of the recording."""

    start_ms: int
    end_ms: int
    #: Empty if no speech engine answered.
    transcript: str
    #: Number of the speaker in this recording, from 0 in order of first appearance.
    speaker: int
    #: A registered speaker, or `Unknown 0`, `Unknown 1`, …
    name: str
    #: Cosine with the nearest registered speaker, or -1.0 if there is none.
    score: float
    #: Whether a registered speaker was recognised.
    known: bool
    #: Whether there was too little speech to judge the voice.
    unlabeled: bool = False


class ReEnrollment(msgspec.Struct, frozen=True):
    """The outcome of embedding a speaker's samples again."""

    #: Samples that were embedded again.
    done: int
    #: Samples of another model without a readable voice file.
    left: int


class Speakers(Protocol):
    """Manages and recognises the registered speakers of organizations. Every call may raise DirectoryDown.

    `file` is the descriptor of a seekable file with an untrusted recording that was not probed before.
    """

    async def profiles(self, organization: str) -> Sequence[Profile]: ...

    async def register(self, organization: str, speaker: str, file: int) -> Profile:
        """Add a voice sample to a speaker atomically; the first sample creates the speaker.

        Raises:
            RuleBroken: the limit of speakers or samples is reached, or the recording has too little speech.
            AudioTooLong: the recording is longer than ten minutes.
            AudioError: the recording is not readable audio.
            EngineAway: the speaker engine does not answer.
            Unavailable: too many requests wait, or the recording cannot be probed or stored now.
        """

    async def register_passage(
        self, organization: str, speaker: str, file: int, content_type: str, spans: Sequence[tuple[int, int]]
    ) -> Profile:
        """Add ranges of a recording, (start, end) in milliseconds and in order, as one voice sample.

        `content_type` describes the recording in the form that `topics.media.parse` accepts.

        Raises:
            RuleBroken, AudioError, EngineAway, Unavailable: as in `register`.
        """

    async def name(self, organization: str, speaker: str, display_name: str | None) -> Profile:
        """Set what people call a speaker, None for the name.

        Raises:
            RuleBroken: there is no such speaker.
        """

    async def remove(self, organization: str, speaker: str) -> None:
        """Delete a speaker, their samples and their voice files.

        Raises:
            RuleBroken: there is no such speaker.
            Unavailable: the speaker is deleted, but a voice file is not yet; the deletion is retried.
        """

    async def recognize(self, organization: str, file: int) -> Sequence[SpeakerTurn]:
        """Return the turns of the organization's speakers in order of time, or nothing if nobody speaks.

        Raise like `register`, except RuleBroken.
        """

    async def re_enroll(self, organization: str, speaker: str) -> ReEnrollment:
        """Embed a speaker's samples of other models again, from the stored voice files.

        Raises:
            RuleBroken: there is no such speaker.
            EngineAway: the speaker engine does not answer; samples embedded so far stay.
            Unavailable: the voice files cannot be read now.
        """


def too_many_speakers() -> RuleBroken:
    """Return the error for an organization at `MAX_SPEAKERS`; the interface prescribes the text."""
    return RuleBroken(f"speaker_max_count({MAX_SPEAKERS}) exceeded")


def too_many_samples() -> RuleBroken:
    """Return the error for a speaker at `MAX_SAMPLES`; the interface prescribes the text."""
    return RuleBroken(f"voice_max_count({MAX_SAMPLES}) exceeded")


def speaker_not_found() -> RuleBroken:
    return RuleBroken("speaker not found")
