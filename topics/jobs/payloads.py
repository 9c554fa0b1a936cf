"""The portions of services, and how a whole result is built from them."""

from typing import Final

import msgspec


class Sounds(msgspec.Struct, frozen=True, array_like=True):
    """A portion of `sound_event_detection`: consecutive windows of 2 s every 1 s (`topics.geometry.SENSE`)."""

    #: Index of the first window.
    first: int
    model: str
    #: Tags of a window.
    tags: int
    #: Packed scores (`topics.scores`), one byte a tag, window by window.
    scores: bytes
    #: The embeddings that are kept with the windows, one byte a number; zeros where no look was heard.
    looks: bytes = b""

    @property
    def windows(self) -> int:
        return len(self.scores) // self.tags


class Word(msgspec.Struct, frozen=True, array_like=True):
    """A word with its punctuation; times as of `Segment`."""

    start_ms: int
    end_ms: int
    text: str


class Overlap(msgspec.Struct, frozen=True, array_like=True):
    """A part of a turn in which somebody else speaks too; times as of `Segment`."""

    start_ms: int
    end_ms: int
    #: As of `Segment`.
    speaker: int
    name: str = ""


class Segment(msgspec.Struct, frozen=True, array_like=True):
    """One uninterrupted turn of one speaker; times in milliseconds from the beginning of the audio."""

    start_ms: int
    end_ms: int
    text: str
    #: Number of the voice in this job, from 0 in order of first appearance.
    speaker: int = 0
    #: A registered speaker, or `Unknown N`.
    name: str = ""
    #: Cosine with the registered speaker, -1.0 without one.
    score: float = -1.0
    #: If the job asked for them, and the engine gave their times.
    words: tuple[Word, ...] = ()
    #: How long others speak during this turn, as far as it was noticed.
    overlap_ms: int = 0
    #: Who, and when; earlier versions did not know.
    overlaps: tuple[Overlap, ...] = ()


class Transcript(msgspec.Struct, frozen=True, array_like=True):
    """A portion of `speech_analysis`: turns in order of time."""

    segments: tuple[Segment, ...]
    #: Languages that the engine heard, as it named them, most frequent first.
    languages: tuple[str, ...] = ()


class Insights(msgspec.Struct, frozen=True):
    """The one portion of `audio_insights`; without words the last three are None."""

    contains_speech: bool
    primary_sound_environment: str
    situation_summary: str
    notable_events: tuple[str, ...]
    #: English names of languages, comma-separated.
    detected_language: str | None = None
    speech_content_summary: str | None = None
    keywords: tuple[str, ...] | None = None


class Caption(msgspec.Struct, frozen=True, array_like=True):
    """The one portion of `caption`."""

    text: str


class Translated(msgspec.Struct, frozen=True, array_like=True):
    """A portion of `translation`: the text of each turn of the transcript, in its order."""

    target: str
    texts: tuple[str, ...]


encode: Final = msgspec.msgpack.Encoder().encode
sounds: Final = msgspec.msgpack.Decoder(Sounds).decode
transcript: Final = msgspec.msgpack.Decoder(Transcript).decode
insights: Final = msgspec.msgpack.Decoder(Insights).decode
caption: Final = msgspec.msgpack.Decoder(Caption).decode
translated: Final = msgspec.msgpack.Decoder(Translated).decode
