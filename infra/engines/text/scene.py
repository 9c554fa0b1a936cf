"""The sounds and turns of a recording, arranged for sentences: from the tag timeline and transcript of a request."""

from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from typing import Annotated, Final, Literal

import msgspec

from infra.engines.text.phrases import Phrase, phrase

#: At most four months, so that sums of times stay exact.
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e7)]

#: A texture that covers this share of the recording is its background.
BACKGROUND: Final = 0.5
#: A more specific tag covers another one if its peak is at least this share of the other's.
AS_STRONG: Final = 0.5


class TagEvent(msgspec.Struct, frozen=True):
    """A stretch of one tag."""

    tag: str
    start: Seconds
    end: Seconds
    peak: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0


class TranscriptTurn(msgspec.Struct, frozen=True):
    """A turn of the transcript."""

    text: str
    start: Seconds = 0.0
    end: Seconds = 0.0
    speaker: str | int | None = None


class SceneRequest(msgspec.Struct, frozen=True):
    """The last user message, which is JSON text."""

    task: Literal["audio_insights", "caption"]
    duration_seconds: Seconds
    events: tuple[TagEvent, ...] = ()
    transcript: tuple[TranscriptTurn, ...] = ()
    #: Languages of the transcript, as names or codes, if known.
    languages: tuple[str, ...] = ()
    #: Services that failed: their findings are unknown.
    unavailable: tuple[str, ...] = ()


class Sound(msgspec.Struct, frozen=True):
    """All events of one tag together; times in seconds."""

    phrase: Phrase
    count: int
    start: float
    end: float
    #: Total length without pauses.
    seconds: float
    peak: float


class Scene(msgspec.Struct, frozen=True):
    """The content of a recording; each list of sounds begins with the strongest."""

    duration: float
    background: tuple[Sound, ...]
    foreground: tuple[Sound, ...]
    voices: tuple[Sound, ...]
    #: Turns that have words, in order of time.
    turns: tuple[TranscriptTurn, ...]
    #: Of the transcript, if known.
    languages: tuple[str, ...] = ()
    #: Whether sounds, and whether words, were looked for.
    sounds_known: bool = True
    words_known: bool = True

    @property
    def sounds(self) -> tuple[Sound, ...]:
        return (*self.foreground, *self.background)


def build_scene(request: SceneRequest) -> Scene:
    """Return the scene that a request describes."""
    duration = max((request.duration_seconds, *(event.end for event in request.events)))
    sounds = _most_specific([_sound(tag, events) for tag, events in _by_tag(request.events)], duration)
    others = [sound for sound in sounds if sound.phrase.kind != "voice"]
    background = tuple(sound for sound in others if _is_background(sound, duration))
    return Scene(
        duration,
        background,
        tuple(sound for sound in others if sound not in background),
        tuple(sound for sound in sounds if sound.phrase.kind == "voice"),
        tuple(sorted((line for line in request.transcript if line.text.strip()), key=attrgetter("start"))),
        request.languages,
        "sound_event_detection" not in request.unavailable,
        "speech_analysis" not in request.unavailable,
    )


def is_lasting(sound: Sound, duration: float) -> bool:
    return sound.seconds >= BACKGROUND * duration


def _is_background(sound: Sound, duration: float) -> bool:
    return sound.phrase.kind == "texture" and is_lasting(sound, duration)


def _by_tag(events: Iterable[TagEvent]) -> list[tuple[str, list[TagEvent]]]:
    ordered = sorted(events, key=attrgetter("tag", "start"))
    return [(tag, list(group)) for tag, group in groupby(ordered, key=attrgetter("tag"))]


def _sound(tag: str, events: list[TagEvent]) -> Sound:
    """Return the sound of one tag from its events in order of time; adjacent events count as one."""
    count, seconds, reached = 0, 0.0, -1.0
    for event in events:
        count += event.start > reached
        seconds += max(0.0, event.end - max(event.start, reached))
        reached = max(reached, event.end)
    return Sound(phrase(tag), count, events[0].start, reached, seconds, max(event.peak for event in events))


def _most_specific(sounds: list[Sound], duration: float) -> list[Sound]:
    """Return the sounds without those that a more specific tag covers, strongest first.

    A short sound does not cover a lasting one: music stays if strings are recognised in two of its seconds.
    """
    covered = {
        (general, is_lasting(sound, duration)): sound.peak
        for sound in sorted(sounds, key=attrgetter("peak"))
        for general in sound.phrase.general
    }

    def is_covered(sound: Sound) -> bool:
        lengths = (True,) if is_lasting(sound, duration) else (True, False)
        return any(covered.get((sound.phrase.tag, length), -1.0) >= AS_STRONG * sound.peak for length in lengths)

    kept = [sound for sound in sounds if not is_covered(sound)]
    return sorted(kept, key=lambda sound: (-sound.peak, sound.start, sound.phrase.tag))
