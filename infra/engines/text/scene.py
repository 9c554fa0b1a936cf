"""Arranges the tag timeline and transcript of a request as a scene for sentences."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Annotated, Final, Literal

import msgspec

from infra.engines.text.phrases import Phrase, phrase
from topics.geometry import SENSE
from topics.scores import CERTAIN

#: At most four months, so that sums of times stay exact.
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e7)]

#: Start and end, in seconds.
Stretch = tuple[float, float]

#: Length of the windows of a job. A sound begins somewhere in the first window that reports it, and ends somewhere in
#: the last.
WINDOW_S: Final = SENSE.window_ms / 1000
HOP_S: Final = SENSE.hop_ms / 1000
#: A sound that is reported in this share of the recording is heard throughout; a texture is then its background.
THROUGHOUT: Final = 0.9
#: A more specific tag covers a general one if its peak is at least this share of the other's peak, and if it fills at
#: least this share of the other's time.
AS_STRONG: Final = 0.5
AS_LONG: Final = 0.5


class TagEvent(msgspec.Struct, frozen=True):
    """A stretch of one tag, from the start of its first window to the end of its last."""

    tag: str
    start: Seconds
    end: Seconds
    peak: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0
    #: How many windows report it; by default all between its ends.
    windows: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] | None = None

    @property
    def seconds(self) -> float:
        """Its length without pauses; a little less if it has some."""
        length = max(0.0, self.end - self.start)
        return length if self.windows is None else min(length, WINDOW_S + (self.windows - 1) * HOP_S)

    @property
    def certain(self) -> Stretch:
        """The part in which the sound surely goes on; empty if its end is not after its start."""
        has_pauses = self.seconds < self.end - self.start
        return (self.start + WINDOW_S, self.start if has_pauses else self.end - WINDOW_S)


class TranscriptTurn(msgspec.Struct, frozen=True):
    """What one speaker says without a break."""

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
    #: The middle of the transcript is left out.
    transcript_cut: bool = False
    #: Services that failed: their findings are unknown.
    unavailable: tuple[str, ...] = ()


class Sound(msgspec.Struct, frozen=True):
    """All events of one tag; times are in seconds."""

    phrase: Phrase
    peak: float
    #: The windows that report it, in order of time; they do not touch.
    stretches: tuple[Stretch, ...]
    #: The parts of them in which it surely goes on.
    certain: tuple[Stretch, ...]
    #: Total length without pauses.
    seconds: float

    @property
    def is_certain(self) -> bool:
        return self.peak >= CERTAIN

    @property
    def count(self) -> int:
        return len(self.stretches)

    @property
    def start(self) -> float:
        return self.stretches[0][0]

    @property
    def end(self) -> float:
        return self.stretches[-1][1]


class Scene(msgspec.Struct, frozen=True):
    """The content of a recording; each list of sounds begins with the strongest."""

    duration: float
    background: tuple[Sound, ...]
    foreground: tuple[Sound, ...]
    voices: tuple[Sound, ...]
    #: Turns that have words, in order of time.
    turns: tuple[TranscriptTurn, ...]
    #: Languages of the transcript, if known.
    languages: tuple[str, ...] = ()
    #: The middle of the turns is missing.
    turns_cut: bool = False
    #: Whether the sound and speech services ran.
    sounds_known: bool = True
    words_known: bool = True

    @property
    def sounds(self) -> tuple[Sound, ...]:
        return (*self.foreground, *self.background)


def build_scene(request: SceneRequest) -> Scene:
    duration = max((request.duration_seconds, *(event.end for event in request.events)))
    ordered = sorted(request.events, key=attrgetter("tag", "start"))
    sounds = _most_specific([_sound(tag, list(events)) for tag, events in groupby(ordered, key=attrgetter("tag"))])
    others = [sound for sound in sounds if sound.phrase.kind != "voice"]
    long = [sound for sound in others if is_throughout(sound.stretches, sound.seconds, duration)]
    background = tuple(sound for sound in long if sound.phrase.kind == "texture")
    return Scene(
        duration,
        background,
        tuple(sound for sound in others if sound not in background),
        tuple(sound for sound in sounds if sound.phrase.kind == "voice"),
        tuple(sorted((line for line in request.transcript if line.text.strip()), key=attrgetter("start"))),
        request.languages,
        request.transcript_cut,
        "sound_event_detection" not in request.unavailable,
        "speech_analysis" not in request.unavailable,
    )


def _sound(tag: str, events: list[TagEvent]) -> Sound:
    stretches = merge_stretches((event.start, event.end) for event in events)
    certain = merge_stretches(event.certain for event in events if event.certain[0] < event.certain[1])
    seconds = min(sum(event.seconds for event in events), total_seconds(stretches))
    return Sound(phrase(tag), max(event.peak for event in events), stretches, certain, seconds)


def merge_stretches(stretches: Iterable[Stretch]) -> tuple[Stretch, ...]:
    """Merge stretches, in order of time, that overlap or touch."""
    merged: list[Stretch] = []
    for start, end in stretches:
        end = max(start, end)
        if merged and start <= merged[-1][1]:
            start, before = merged.pop()
            end = max(end, before)
        merged.append((start, end))
    return tuple(merged)


def is_throughout(stretches: Sequence[Stretch], seconds: float, duration: float) -> bool:
    """Return whether a sound is heard all the time; each pause may be longer than its gap by a window at each end."""
    pauses = 2 * WINDOW_S * (len(stretches) - 1)
    return duration > 2 * WINDOW_S and seconds - pauses >= THROUGHOUT * duration


def total_seconds(stretches: Iterable[Stretch]) -> float:
    return sum(end - start for start, end in stretches)


def seconds_together(some: Sequence[Stretch], others: Sequence[Stretch]) -> float:
    """Return how long both are heard; both lists are in order of time and do not touch."""
    together, one, other = 0.0, 0, 0
    while one < len(some) and other < len(others):
        (start, end), (other_start, other_end) = some[one], others[other]
        together += max(0.0, min(end, other_end) - max(start, other_start))
        one, other = (one + 1, other) if end < other_end else (one, other + 1)
    return together


def _most_specific(sounds: list[Sound]) -> list[Sound]:
    """Remove the sounds that a more specific tag covers, and sort the rest strongest first.

    A short sound does not cover a long one: music stays if strings are recognised in two of its seconds.
    """

    def is_covered(sound: Sound) -> bool:
        return any(
            sound.phrase.tag in other.phrase.general
            and other.peak >= AS_STRONG * sound.peak
            and seconds_together(other.stretches, sound.stretches) >= AS_LONG * sound.seconds
            for other in sounds
        )

    kept = [sound for sound in sounds if not is_covered(sound)]
    return sorted(kept, key=lambda sound: (-sound.peak, sound.start, sound.phrase.tag))
