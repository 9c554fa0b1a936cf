"""The payloads of portions, which together form the result of a service."""

from typing import Final

import msgspec

from topics.jobs.options import Service


class Sounds(msgspec.Struct, frozen=True, array_like=True):
    """A portion of `sound_event_detection`: consecutive windows of 2 s every 1 s (`topics.geometry.SENSE`)."""

    #: Index of the first window.
    first: int
    model: str
    #: Number of tags per window.
    tags: int
    #: Packed scores (`topics.scores`), one byte per tag, window by window.
    scores: bytes
    #: The embeddings kept with the windows, one byte per number; zeros for contexts that were not heard.
    embeddings: bytes = b""

    @property
    def windows(self) -> int:
        return len(self.scores) // self.tags


class Word(msgspec.Struct, frozen=True, array_like=True):
    """A word with its punctuation; times as in `Segment`."""

    start_ms: int
    end_ms: int
    text: str


class Overlap(msgspec.Struct, frozen=True, array_like=True):
    """A part of a turn in which another person speaks too; times as in `Segment`."""

    start_ms: int
    end_ms: int
    #: As in `Segment`.
    speaker: int
    name: str = ""


class Segment(msgspec.Struct, frozen=True, array_like=True):
    """One uninterrupted turn of a speaker; times in milliseconds from the start of the audio."""

    start_ms: int
    end_ms: int
    text: str
    #: Number of the voice in this job, from 0 in order of first appearance.
    speaker: int = 0
    #: A registered speaker, or `Unknown N`.
    name: str = ""
    #: Cosine with the registered speaker, -1.0 without one.
    score: float = -1.0
    #: Set if the job requested them and the engine returned their times.
    words: tuple[Word, ...] = ()
    #: Detected duration of other speech during this turn.
    overlap_ms: int = 0
    #: Who speaks then, and when.
    overlaps: tuple[Overlap, ...] = ()


class Transcript(msgspec.Struct, frozen=True, array_like=True):
    """A portion of `speech_analysis`: turns in order of time."""

    segments: tuple[Segment, ...]
    #: Languages that the engine detected, under its names, most frequent first.
    languages: tuple[str, ...] = ()


class Insights(msgspec.Struct, frozen=True):
    """The only portion of `audio_insights`; without speech, the last three fields are None."""

    contains_speech: bool
    primary_sound_environment: str
    situation_summary: str
    notable_events: tuple[str, ...]
    #: English names of languages, comma-separated.
    detected_language: str | None = None
    speech_content_summary: str | None = None
    keywords: tuple[str, ...] | None = None


class Caption(msgspec.Struct, frozen=True, array_like=True):
    """The only portion of `caption`."""

    caption: str


class Translated(msgspec.Struct, frozen=True, array_like=True):
    """A portion of `translation`: the texts of the transcript's turns, in order."""

    target: str
    texts: tuple[str, ...]


#: The portions of each service.
PORTIONS: Final[dict[Service, type[msgspec.Struct]]] = {
    Service.SOUND: Sounds,
    Service.SPEECH: Transcript,
    Service.INSIGHTS: Insights,
    Service.CAPTION: Caption,
    Service.TRANSLATION: Translated,
}
PORTION_DECODERS: Final = {service: msgspec.msgpack.Decoder(kind) for service, kind in PORTIONS.items()}
encode: Final = msgspec.msgpack.Encoder().encode
sounds: Final = msgspec.msgpack.Decoder(Sounds).decode
transcript: Final = msgspec.msgpack.Decoder(Transcript).decode
translated: Final = msgspec.msgpack.Decoder(Translated).decode
