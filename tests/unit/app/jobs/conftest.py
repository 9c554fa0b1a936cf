"""Shared by tests of the job interface: an edge in process, and requests without a server."""

import asyncio

from tests.unit.app.conftest import Exchange, house, http
from tests.unit.app.double import MODEL, STRONG, TAGS, WEAK
from topics.jobs import payloads
from topics.jobs.options import Options
from topics.jobs.payloads import Caption, Insights, Segment, Sounds, Transcript, Translated

__all__ = ["Exchange", "house", "http"]

ALL = Options(sound_event_detection=True, speech_analysis=True, audio_insights=True, caption=True, translation=True)
SOUND = Options(sound_event_detection=True)
BOTH = Options(sound_event_detection=True, speech_analysis=True)

TURNS = (
    Segment(4600, 8910, "Good morning.", 1, "Anna_Kim", 0.41239),
    Segment(9000, 11_500, "Guten Tag.", 0, "Unknown 0"),
)
INSIGHTS = Insights(True, "Kitchen", "Two people greet.", ("Dog_bark",), "English, German", "Greetings", ("hello",))


def sounds(*windows: str, first: int = 0) -> bytes:
    """Return a portion of windows, each given by its tags, strongest first: `"Siren Speech"`."""
    scores = bytearray()
    for window in windows:
        found = window.split()
        place = {tag: max(WEAK, STRONG - 5 * index) for index, tag in enumerate(found)}
        scores += bytes(place.get(tag, 0) for tag in TAGS)
    return payloads.encode(Sounds(first, MODEL, len(TAGS), bytes(scores)))


def transcript(*turns: Segment) -> bytes:
    return payloads.encode(Transcript(turns))


def translated(*texts: str) -> bytes:
    return payloads.encode(Translated("en", texts))


INSIGHTS_PORTION = payloads.encode(INSIGHTS)
CAPTION_PORTION = payloads.encode(Caption("Two people greet each other."))


def alone() -> bool:
    return asyncio.all_tasks() == {asyncio.current_task()}
