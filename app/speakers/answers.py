"""Answers about speakers: the envelope of the contract around the types of its data."""

from typing import Annotated, Final, Generic, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from app.http.replies import Time

T = TypeVar("T")

Clock = Annotated[str, Meta(description="`MM:SS.ss` from the start of the recording.")]
Milliseconds = Annotated[int, Meta(ge=0, description="From the start of the recording.")]


class SpeakerEntry(msgspec.Struct, frozen=True):
    """A registered speaker."""

    speaker: str
    created_at: Time
    total_length: Annotated[float, Meta(ge=0, description="Seconds of all voice samples together.")]
    samples: Annotated[int, Meta(ge=0)]
    is_compatible: Annotated[
        bool, Meta(description="False if another model made the samples: the speaker is not recognised.")
    ]
    display_name: Annotated[
        str | UnsetType, Meta(description="What people call the speaker; absent if that is the name.")
    ] = UNSET


class RemovedSpeaker(msgspec.Struct, frozen=True):
    """A speaker who was removed."""

    speaker: str


class ReEnrolledSpeaker(msgspec.Struct, frozen=True):
    """A speaker whose samples were embedded again."""

    speaker: str
    done: Annotated[int, Meta(ge=0, description="Samples that the model in use embedded now.")]
    left: Annotated[int, Meta(ge=0, description="Samples whose recording was not kept.")]


class RecognisedTurn(msgspec.Struct, frozen=True):
    """The words of one speaker without a break, and the speaker's name."""

    idx: Annotated[int, Meta(ge=0)]
    transcript: Annotated[str, Meta(description="Empty if no speech engine answered.")]
    confidence: Annotated[int, Meta(description="Always 0: no engine reports its confidence.")]
    first_word_start_msec: Milliseconds
    first_word_start_time: Clock
    last_word_end_msec: Milliseconds
    last_word_end_time: Clock
    speaker_tag: Annotated[int, Meta(ge=0, description="The voice in this recording, from 0.")]
    speaker_name: Annotated[str, Meta(description="A registered speaker, or `Unknown 0`, `Unknown 1`, ...")]
    speaker_score: Annotated[float, Meta(ge=-1, le=1, description="Cosine with the nearest registered speaker.")]
    speaker_is_unlabeled: Annotated[bool, Meta(description="Too little was said to judge the voice.")]
    org_pub_id: Annotated[str, Meta(description="The organization if the speaker is registered, else empty.")]


class Transcription(msgspec.Struct, frozen=True):
    """The turns of a recording, in order of time."""

    transcription: list[RecognisedTurn]


class Success(msgspec.Struct, Generic[T], frozen=True):
    """The envelope of the contract."""

    data: T
    error: Literal[""]
    debug: str


class SpeakerList(Success[list[SpeakerEntry]], frozen=True):
    """The speakers of the organization, by name."""


class RegisteredVoice(Success[SpeakerEntry], frozen=True):
    """The speaker with the new sample."""


class NamedSpeaker(Success[SpeakerEntry], frozen=True):
    """The speaker with the new display name."""


class SpeakerRemoval(Success[RemovedSpeaker], frozen=True):
    """The speaker who was removed."""


class ReEnrolment(Success[ReEnrolledSpeaker], frozen=True):
    """The speaker whose samples were embedded again."""


class Recognition(Success[Transcription], frozen=True):
    """Who speaks when."""


class SpeakerFault(msgspec.Struct, frozen=True):
    """An error; HTTP 200 if a rule of the interface is broken."""

    data: None
    error: Annotated[str, Meta(min_length=1)]
    debug: str


#: Examples.
KIM: Final = SpeakerEntry("Kim", "2026-11-22T06:51:02.117Z", 8.14, 1, True)
TURN: Final = RecognisedTurn(
    idx=0,
    transcript="i really liked that account of himself",
    confidence=0,
    first_word_start_msec=530,
    first_word_start_time="00:00.53",
    last_word_end_msec=4700,
    last_word_end_time="00:04.70",
    speaker_tag=0,
    speaker_name="Kim",
    speaker_score=0.7812,
    speaker_is_unlabeled=False,
    org_pub_id="1f3a9c2e",
)
