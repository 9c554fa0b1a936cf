"""The descriptions of a job that a language model writes: its likely place, events and speech, and one sentence."""

from typing import Annotated, Final

import msgspec

from streams.services.prompting import TEXT, ChatTask, PromptData, Text
from topics.jobs import payloads
from topics.jobs.options import Service

ShortTexts = Annotated[tuple[Annotated[str, msgspec.Meta(max_length=200)], ...], msgspec.Meta(max_length=100)]

_INSIGHTS: Final = {
    "contains_speech": {"type": "boolean", "description": "whether somebody speaks"},
    "primary_sound_environment": {**TEXT, "description": "where this may have been recorded, a few words"},
    "situation_summary": {**TEXT, "description": "what goes on, two or three sentences"},
    "notable_events": {
        "type": "array",
        "items": TEXT,
        "description": "tags of the sounds worth noting, the most important first",
    },
    "detected_language": {
        "type": ["string", "null"],
        "description": "English names of the spoken languages, separated by commas; null without a transcript",
    },
    "speech_content_summary": {
        "type": ["string", "null"],
        "description": "what is said, one or two sentences; null without a transcript",
    },
    "keywords": {
        "type": ["array", "null"],
        "items": TEXT,
        "description": "up to ten words for what is said; null without a transcript",
    },
}
_CAPTION: Final = {"caption": {**TEXT, "description": "one sentence that says what is heard"}}


class InsightsAnswer(msgspec.Struct, frozen=True):
    """Insights as the engine writes them; the last three are ignored if there is no transcript."""

    contains_speech: bool
    primary_sound_environment: Text
    situation_summary: Text
    notable_events: ShortTexts
    detected_language: Annotated[str, msgspec.Meta(max_length=200)] | None = None
    speech_content_summary: Annotated[str, msgspec.Meta(max_length=8000)] | None = None
    keywords: ShortTexts | None = None


class CaptionAnswer(msgspec.Struct, frozen=True):
    """The caption as the engine writes it."""

    caption: Text


_INSIGHTS_ANSWER: Final = msgspec.json.Decoder(InsightsAnswer)
_CAPTION_ANSWER: Final = msgspec.json.Decoder(CaptionAnswer)


def _insights(text: str, data: PromptData) -> payloads.Insights:
    answer = _INSIGHTS_ANSWER.decode(text)
    speech = (answer.detected_language, answer.speech_content_summary, answer.keywords)
    if not data.transcript:
        speech = (None, None, None)
    elif None in speech:
        raise ValueError("the transcript has words, but detected_language, speech_content_summary or keywords are null")
    return payloads.Insights(
        # Words are speech, whatever the engine answers.
        answer.contains_speech or bool(data.transcript),
        answer.primary_sound_environment,
        answer.situation_summary,
        answer.notable_events,
        *speech,
    )


def _caption(text: str, data: PromptData) -> payloads.Caption:
    return payloads.Caption(" ".join(_CAPTION_ANSWER.decode(text).caption.split()))


INSIGHTS: Final = ChatTask(Service.INSIGHTS, _INSIGHTS, _insights, prompted=True)
CAPTION: Final = ChatTask(Service.CAPTION, _CAPTION, _caption)
TASKS: Final = (INSIGHTS, CAPTION)
