"""Registered speakers, and who speaks when."""

from __future__ import annotations

import msgspec


class SpeakerProfile(msgspec.Struct, frozen=True, rename={"name": "speaker"}):
    """A registered speaker."""

    name: str
    #: RFC 3339, UTC.
    created_at: str
    #: Length of all voice samples together, seconds.
    total_length: float
    samples: int
    #: False when the service's model has changed since, and cannot compare this speaker: see `re_enroll`.
    is_compatible: bool


class SpokenTurn(
    msgspec.Struct,
    frozen=True,
    rename={
        "start_ms": "first_word_start_msec",
        "end_ms": "last_word_end_msec",
        "voice": "speaker_tag",
        "name": "speaker_name",
        "score": "speaker_score",
        "unlabeled": "speaker_is_unlabeled",
        "organization": "org_pub_id",
    },
):
    """One uninterrupted turn of one speaker, milliseconds from the beginning."""

    start_ms: int
    end_ms: int
    #: Empty where no speech engine answered.
    transcript: str
    #: Voices of this recording count from 0.
    voice: int
    #: A registered speaker, or `Unknown 0`, `Unknown 1`, …
    name: str
    #: Likeness to the nearest registered speaker, -1 where nobody is registered.
    score: float
    #: Too little was said to judge the voice.
    unlabeled: bool = False
    #: Id of the organization that knows the speaker, empty for an unknown one.
    organization: str = ""

    @property
    def known(self) -> bool:
        """A registered speaker was recognised."""
        return bool(self.organization)


class ReEnrolled(msgspec.Struct, frozen=True, rename={"name": "speaker"}):
    """What came of learning a speaker's samples again."""

    name: str
    #: Samples that the service's model knows now.
    done: int
    #: Samples of another model whose recording was not kept.
    left: int
