"""Registered speakers, and who speaks when."""

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from topics.errors import RuleBroken

#: Speakers of an organization.
MAX_SPEAKERS: Final = 50
#: Samples of a speaker.
MAX_SAMPLES: Final = 20


class Profile(msgspec.Struct, frozen=True):
    """A registered speaker."""

    name: str
    #: Milliseconds since 1970, UTC.
    created_at: int
    #: Length of all voice samples together, milliseconds of audio.
    length_ms: int
    samples: int
    #: False when a sample was embedded by another model than the one in use, which cannot compare it.
    compatible: bool


class SpeakerTurn(msgspec.Struct, frozen=True):
    """One uninterrupted turn of one speaker in a recording, milliseconds from its beginning."""

    start_ms: int
    end_ms: int
    #: Empty if no speech engine answered.
    transcript: str
    #: Speakers of this recording count from 0 in order of first appearance.
    speaker: int
    #: A registered speaker, or `Unknown 0`, `Unknown 1`, …
    name: str
    #: Cosine with the nearest registered speaker, or -1.0 if nobody is registered.
    score: float
    #: A registered speaker was recognised.
    known: bool
    #: Too little was said to judge the voice.
    unlabeled: bool = False


class ReEnrollment(msgspec.Struct, frozen=True):
    """The outcome of embedding a speaker's samples again."""

    #: Samples that the model in use has embedded now.
    done: int
    #: Samples of another model whose voice file was not kept, or is no longer readable.
    left: int


class Speakers(Protocol):
    """Registered speakers of organizations, and their recognition. Every call may raise DirectoryDown.

    `file` is the descriptor of a seekable file with a recording of a stranger; it was not looked at before.
    """

    async def profiles(self, organization: str) -> Sequence[Profile]: ...

    async def register(self, organization: str, speaker: str, file: int) -> Profile:
        """Add a voice sample to a speaker, who is created with the first one; all of it is done, or nothing.

        Raises:
            RuleBroken: the organization has its most speakers or the speaker their most samples, or the recording
                holds too little speech.
            AudioTooLong: the recording is longer than ten minutes.
            AudioError: it is not audio that can be read.
            EngineAway: the speaker engine does not answer.
            Unavailable: too much waits already, or the recording cannot be looked into or kept now.
        """

    async def register_passage(
        self, organization: str, speaker: str, file: int, content_type: str, spans: Sequence[tuple[int, int]]
    ) -> Profile:
        """Add stretches of a recording, (start, end) in milliseconds and in order, as one voice sample.

        `content_type` is that of the recording, as `topics.media.parse` reads it.

        Raises:
            RuleBroken, AudioError, EngineAway, Unavailable: as `register`.
        """

    async def remove(self, organization: str, speaker: str) -> None:
        """Delete a speaker, their samples and their voice files.

        Raises:
            RuleBroken: there is no such speaker.
            Unavailable: the speaker is gone, but a voice file could not be deleted yet; it is tried again until it is.
        """

    async def recognize(self, organization: str, file: int) -> Sequence[SpeakerTurn]:
        """Return who of the organization's speakers speaks when, in order of time; nothing if nobody speaks.

        Raise what `register` raises, except RuleBroken.
        """

    async def re_enroll(self, organization: str, speaker: str) -> ReEnrollment:
        """Embed those samples of a speaker again that another model embedded, where their voice files were kept.

        Raises:
            RuleBroken: there is no such speaker.
            EngineAway: the speaker engine does not answer; what was embedded before stays so.
            Unavailable: the voice files cannot be read now.
        """


def too_many_speakers() -> RuleBroken:
    """Return the error of an organization that has `MAX_SPEAKERS`; the interface prescribes its words."""
    return RuleBroken(f"speaker_max_count({MAX_SPEAKERS}) exceeded")


def too_many_samples() -> RuleBroken:
    """Return the error of a speaker who has `MAX_SAMPLES`; the interface prescribes its words."""
    return RuleBroken(f"voice_max_count({MAX_SAMPLES}) exceeded")


def speaker_not_found() -> RuleBroken:
    return RuleBroken("speaker not found")
