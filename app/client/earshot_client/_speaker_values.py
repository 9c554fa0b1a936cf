"""Registered speakers, and the turns of a recording in which they are recognised."""

import msgspec


class JobVoice(msgspec.Struct, frozen=True):
    """A voice given as a speaker of a job's transcript. The service must have kept the job's audio.

    Attributes:
        job_id: a finished job of the organization.
        speaker: the voice's label in the transcript, such as `SPEAKER_01`.
    """

    job_id: str
    speaker: str


class SpeakerProfile(msgspec.Struct, frozen=True, omit_defaults=True, rename={"name": "speaker"}):
    """A registered speaker.

    Attributes:
        name: letters of ASCII, digits and underscores.
        created_at: RFC 3339, UTC.
        total_length: length of all voice samples together, seconds.
        samples: number of voice samples, at most 20.
        is_compatible: False if another model than the service's current one made the samples. The speaker is then not
            recognised until `re_enroll`.
        display_name: what people call the speaker; None for the name.
    """

    name: str
    created_at: str
    total_length: float
    samples: int
    is_compatible: bool
    display_name: str | None = None


class SpeakerTurn(
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
    """What one speaker says without a break, and who it is.

    Attributes:
        start_ms: milliseconds from the beginning of the recording.
        end_ms: milliseconds from the beginning of the recording.
        transcript: the words; empty if no speech engine answered in time.
        voice: number of the voice in this recording, from 0.
        name: name of the registered speaker, or a name such as `Unknown 0`.
        score: likeness to the nearest registered speaker, -1 to 1; -1 if nobody is registered.
        unlabeled: True if the voice says too little to be compared.
        organization: id of the organization of the registered speaker; empty for an unknown one.
    """

    start_ms: int
    end_ms: int
    transcript: str
    voice: int
    name: str
    score: float
    unlabeled: bool = False
    organization: str = ""

    @property
    def is_registered(self) -> bool:
        """True if a registered speaker was recognised."""
        return bool(self.organization)


class ReEnrollment(msgspec.Struct, frozen=True, rename={"name": "speaker"}):
    """A speaker whose samples were enrolled again.

    Attributes:
        name: name of the speaker.
        done: samples that the service's current model embedded now.
        left: samples of another model whose recording was not kept.
    """

    name: str
    done: int
    left: int
