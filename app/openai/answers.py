"""Answers of OpenAI's interface (https://platform.openai.com/docs/api-reference/audio)."""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from app.openai.requests import Task

Seconds = Annotated[float, Meta(ge=0)]


class DurationUsage(msgspec.Struct, frozen=True):
    """The audio that was analysed."""

    #: Rounded up to whole seconds.
    seconds: Annotated[int, Meta(ge=0)]
    type: Literal["duration"] = "duration"


class PlainTranscription(msgspec.Struct, frozen=True):
    """The answer in `json`."""

    text: str
    usage: DurationUsage


class TranscriptWord(msgspec.Struct, frozen=True):
    """A word and its times in seconds."""

    word: str
    start: Seconds
    end: Seconds


class TranscriptSegment(msgspec.Struct, frozen=True):
    """A segment of a verbose answer."""

    id: Annotated[int, Meta(ge=0)]
    #: Hundredths of a second.
    seek: Annotated[int, Meta(ge=0)]
    start: Seconds
    end: Seconds
    text: str
    temperature: Annotated[float, Meta(description="That of the request.")]
    compression_ratio: Annotated[float, Meta(ge=0)]
    # Clients require the field, but no engine's tokens are kept.
    tokens: Annotated[list[int], Meta(description="Always empty.")] = []
    avg_logprob: Annotated[float, Meta(description="Always 0.")] = 0.0
    no_speech_prob: Annotated[float, Meta(description="Always 0.")] = 0.0


class VerboseTranscription(msgspec.Struct, frozen=True):
    """The answer in `verbose_json`."""

    task: Task
    language: Annotated[str, Meta(description="English name in lower case; empty if nothing was said.")]
    duration: Seconds
    text: str
    usage: DurationUsage
    words: Annotated[list[TranscriptWord], Meta(description="With the granularity `word`.")] | UnsetType = UNSET
    segments: Annotated[list[TranscriptSegment], Meta(description="With the granularity `segment`.")] | UnsetType = (
        UNSET
    )


class SpeakerSegment(msgspec.Struct, frozen=True):
    """A segment with its speaker, in `diarized_json` and as an event."""

    id: str
    start: Seconds
    end: Seconds
    text: str
    speaker: Annotated[str, Meta(description="A known speaker's name, else `A`, `B`, … in order.")]
    type: Literal["transcript.text.segment"] = "transcript.text.segment"


class DiarizedTranscription(msgspec.Struct, frozen=True):
    """The answer in `diarized_json`."""

    task: Task
    duration: Seconds
    text: str
    segments: list[SpeakerSegment]
    usage: DurationUsage


class TextDelta(msgspec.Struct, frozen=True):
    """The event of more text."""

    delta: str
    segment_id: Annotated[str, Meta(description="With speakers.")] | UnsetType = UNSET
    type: Literal["transcript.text.delta"] = "transcript.text.delta"


class TextDone(msgspec.Struct, frozen=True):
    """The last event: the whole text."""

    text: str
    type: Literal["transcript.text.done"] = "transcript.text.done"


class SpeechModel(msgspec.Struct, frozen=True):
    """A model that a request may name."""

    id: str
    object: Literal["model"] = "model"
    created: Literal[0] = 0
    owned_by: Literal["earshot"] = "earshot"


class SpeechModels(msgspec.Struct, frozen=True):
    """The models that a request may name."""

    data: list[SpeechModel]
    object: Literal["list"] = "list"


#: Examples.
SAID: Final = "you don't mean that"
SEEN: Final = DurationUsage(3)
PLAIN: Final = PlainTranscription(SAID, SEEN)
WORDS: Final = [TranscriptWord("you", 0.278, 0.41), TranscriptWord("don't", 0.41, 0.93)]
SEGMENT: Final = TranscriptSegment(0, 27, 0.278, 2.368, SAID, 0.0, 0.7)
SPOKEN: Final = SpeakerSegment("seg_0", 0.278, 2.368, SAID, "A")
SRT: Final = f"1\n00:00:00,278 --> 00:00:02,368\n{SAID}\n"
VTT: Final = f"WEBVTT\n\n00:00:00.278 --> 00:00:02.368\n{SAID}\n"
STREAM: Final = "".join(f"data: {msgspec.json.encode(one).decode()}\n\n" for one in (TextDelta(SAID), TextDone(SAID)))
