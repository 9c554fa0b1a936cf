"""What is heard in a recording, put in order: the tag timeline and the transcript of a request, tag by tag."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from typing import Annotated, Final, Literal

import msgspec

from infra.engines.phrases import Phrase, phrase

#: No recording is longer (four months), so sums of times stay exact.
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e7)]

#: A texture that covers this share of the recording is its background.
BACKGROUND: Final = 0.5
#: A tag is not worth a word beside a more exact one that is at least this strong in comparison.
AS_STRONG: Final = 0.5


class Event(msgspec.Struct, frozen=True):
    """A stretch of one tag."""

    tag: str
    start: Seconds
    end: Seconds
    peak: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0


class Line(msgspec.Struct, frozen=True):
    """A turn of the transcript."""

    text: str
    start: Seconds = 0.0
    end: Seconds = 0.0
    speaker: str | int | None = None


class Request(msgspec.Struct, frozen=True):
    """What the last user message holds, as JSON text."""

    task: Literal["audio_insights", "caption"]
    duration_seconds: Seconds
    events: tuple[Event, ...] = ()
    transcript: tuple[Line, ...] = ()
    #: Languages of the transcript, names or codes, as far as somebody knows them.
    languages: tuple[str, ...] = ()


class Sound(msgspec.Struct, frozen=True):
    """All that is heard of one tag; times in seconds."""

    phrase: Phrase
    count: int
    start: float
    end: float
    #: How long it is heard, pauses left out.
    seconds: float
    peak: float


class Scene(msgspec.Struct, frozen=True):
    """A recording as sentences speak of it; each list is strongest first."""

    duration: float
    background: tuple[Sound, ...]
    foreground: tuple[Sound, ...]
    voices: tuple[Sound, ...]
    #: Turns with words in them, in order of time.
    turns: tuple[Line, ...]
    #: Of the transcript, as far as somebody knows them.
    languages: tuple[str, ...] = ()

    @property
    def sounds(self) -> tuple[Sound, ...]:
        """All sounds but voices."""
        return (*self.foreground, *self.background)


def scene(request: Request) -> Scene:
    """Put a request in order."""
    duration = max((request.duration_seconds, *(event.end for event in request.events)))
    sounds = _telling([_sound(tag, events) for tag, events in _by_tag(request.events)])
    others = [sound for sound in sounds if sound.phrase.kind != "voice"]
    background = tuple(sound for sound in others if _lasts(sound, duration))
    return Scene(
        duration,
        background,
        tuple(sound for sound in others if sound not in background),
        tuple(sound for sound in sounds if sound.phrase.kind == "voice"),
        tuple(sorted((line for line in request.transcript if line.text.strip()), key=attrgetter("start"))),
        request.languages,
    )


def _lasts(sound: Sound, duration: float) -> bool:
    return sound.phrase.kind == "texture" and sound.seconds >= BACKGROUND * duration


def _by_tag(events: Iterable[Event]) -> list[tuple[str, list[Event]]]:
    ordered = sorted(events, key=attrgetter("tag", "start"))
    return [(tag, list(group)) for tag, group in groupby(ordered, key=attrgetter("tag"))]


def _sound(tag: str, events: list[Event]) -> Sound:
    """Sum up the events of a tag, in order of time; those that touch are one."""
    count, seconds, reached = 0, 0.0, -1.0
    for event in events:
        count += event.start > reached
        seconds += max(0.0, event.end - max(event.start, reached))
        reached = max(reached, event.end)
    return Sound(phrase(tag), count, events[0].start, reached, seconds, max(event.peak for event in events))


def _telling(sounds: list[Sound]) -> list[Sound]:
    """Leave out what more exact tags say better; strongest first."""
    seconds_by_speaker: dict[str, float] = {}
    for sound in sounds:
        for general in sound.phrase.general:
            seconds_by_speaker[general] = max(seconds_by_speaker.get(general, 0.0), sound.peak)
    telling = [sound for sound in sounds if seconds_by_speaker.get(sound.phrase.tag, -1.0) < AS_STRONG * sound.peak]
    return sorted(telling, key=lambda sound: (-sound.peak, sound.start, sound.phrase.tag))
