"""Speakers and their turns as JSON, in the shapes that public clients of the speaker interface read."""

from collections.abc import Sequence

from msgspec import UNSET

from app.speakers.answers import RecognisedTurn, SpeakerEntry, Transcription
from topics.ports.speakers import Profile, SpeakerTurn
from topics.times import clock, iso_time


def speaker_entry(profile: Profile) -> SpeakerEntry:
    length = profile.length_ms / 1000
    shown = UNSET if profile.display_name is None else profile.display_name
    return SpeakerEntry(profile.name, iso_time(profile.created_at), length, profile.samples, profile.compatible, shown)


def transcription(turns: Sequence[SpeakerTurn], organization: str) -> Transcription:
    """Return the turns of a recording that was searched for an organization's (id) speakers."""
    return Transcription([_turn(index, turn, organization) for index, turn in enumerate(turns)])


def _turn(index: int, turn: SpeakerTurn, organization: str) -> RecognisedTurn:
    return RecognisedTurn(
        idx=index,
        transcript=turn.transcript,
        # No engine reports its confidence in the words.
        confidence=0,
        first_word_start_msec=turn.start_ms,
        first_word_start_time=clock(turn.start_ms),
        last_word_end_msec=turn.end_ms,
        last_word_end_time=clock(turn.end_ms),
        speaker_tag=turn.speaker,
        speaker_name=turn.name,
        speaker_score=round(turn.score, 4),
        speaker_is_unlabeled=turn.unlabeled,
        org_pub_id=organization if turn.known else "",
    )
