"""Captions as cues: turns of speech and sound events, with their times.

A cue has at most two lines and lasts at most seven seconds, as in broadcast captions. A longer turn becomes several
cues, which share its time in proportion to their length. A sound event starts with the first of the consecutive windows
that report it, one of which may be missing in between. It gets one cue, at its start.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from operator import attrgetter
from textwrap import wrap
from typing import Final

from app.jobs.rendering import speaker_label
from topics.captions import Cue
from topics.choices import SoundRule
from topics.geometry import SENSE
from topics.jobs.payloads import Segment
from topics.sessions.sounds import ENDED, Heard, SoundRules, SoundTracker

LINE: Final = 42
LINES: Final = 2
LONGEST_MS: Final = 7000
#: Fewer characters than this share a cue, however slowly they are said.
_SHORTEST: Final = 16
#: A sound event ends if two windows in a row do not report it.
SOUND_RULES: Final = (SoundRules(0, "", SoundRule(margin=2 * SENSE.hop_ms / 1000), {}),)
_SPEECH: Final = re.compile(r"(.*[ _])?(speech|whisper|conversation|narration)", re.IGNORECASE)


def ended_sounds(tracker: SoundTracker, number: int, reported: Sequence[tuple[str, float]]) -> Iterator[Heard]:
    """Yield the sound events that end before window `number`; the next call is for the next window."""
    start = number * SENSE.hop_ms
    return (sound for sound in tracker.take(number, start, start + SENSE.window_ms, reported) if sound.event == ENDED)


def recording_cues(turns: Sequence[Segment], events: Iterable[Heard], with_names: bool) -> list[Cue]:
    """Return the cues of a recording in order of time."""
    cues = [cue for turn in turns for cue in speech_cues(turn, with_names)]
    cues += sound_cues(events, turns)
    return sorted(cues, key=attrgetter("start_ms", "end_ms"))


def speech_cues(segment: Segment, with_names: bool) -> list[Cue]:
    """Return the cues of a turn; `with_names` starts the first with the speaker's name."""
    voice = " ".join((segment.name or speaker_label(segment)).replace("_", " ").split())
    text = " ".join(segment.text.split())
    if not text:
        return []
    if with_names:
        text = f"{voice}: {text}"
    lasts = max(segment.end_ms - segment.start_ms, 1)
    # Characters that are said while a cue is shown.
    room = max(_SHORTEST, min(LINE * LINES, len(text) * LONGEST_MS // lasts))
    groups = list(_line_groups(_wrapped_lines(text, min(LINE, room)), room))
    # Character offsets of the starts, and of the last end.
    characters = list(accumulate((sum(map(len, lines)) for lines in groups), initial=0))
    cues: list[Cue] = []
    for number, lines in enumerate(groups):
        begin, end = (segment.start_ms + lasts * at // characters[-1] for at in characters[number : number + 2])
        cues.append(Cue(begin, max(begin + 1, min(end, begin + LONGEST_MS)), voice, lines))
    return cues


def _wrapped_lines(text: str, width: int) -> list[str]:
    """Return as few lines as the width allows, about equally long: the last word or two would otherwise stand alone."""
    words = text.split(" ")
    if len(text) <= width or max(map(len, words)) > width:
        return wrap(text, width)
    #: Of the first words, by their number: lines, their raggedness, and the first word of the last line.
    best = [(0, 0, 0)]
    for stop in range(1, len(words) + 1):
        length, options = -1, list[tuple[int, int, int]]()
        for first in range(stop - 1, -1, -1):
            length += 1 + len(words[first])
            if length > width:
                break
            lines, ragged, _ = best[first]
            options.append((lines + 1, ragged + (width - length) ** 2, first))
        best.append(min(options))
    wrapped, stop = list[str](), len(words)
    while stop:
        wrapped.append(" ".join(words[best[stop][2] : stop]))
        stop = best[stop][2]
    return wrapped[::-1]


def _line_groups(lines: Iterable[str], room: int) -> Iterator[tuple[str, ...]]:
    group: list[str] = []
    for line in lines:
        if group and (len(group) == LINES or sum(map(len, group)) + len(group) + len(line) > room):
            yield tuple(group)
            group = []
        group.append(line)
    if group:
        yield tuple(group)


def sound_cues(events: Iterable[Heard], turns: Sequence[Segment]) -> Iterator[Cue]:
    """Yield the cues of sound events; omits sounds of speech if there is a transcript."""
    talk = _speech_intervals(turns)
    by_start: dict[int, list[Heard]] = {}
    for event in events:
        if not (_SPEECH.fullmatch(event.name) and _overlaps(talk, event)):
            by_start.setdefault(event.start_ms, []).append(event)
    for start, together in by_start.items():
        together.sort(key=lambda event: -event.probability)
        names = " ".join(f"[{event.name.replace('_', ' ')}]" for event in together)
        end = min(max(event.end_ms for event in together), start + LONGEST_MS)
        yield Cue(start, end, "", tuple(_wrapped_lines(names, LINE)[:LINES]))


def _speech_intervals(turns: Sequence[Segment]) -> list[tuple[int, int]]:
    """Return the times of speech as disjoint intervals."""
    intervals: list[tuple[int, int]] = []
    for start, end in sorted((turn.start_ms, turn.end_ms) for turn in turns):
        if intervals and start <= intervals[-1][1]:
            intervals[-1] = (intervals[-1][0], max(end, intervals[-1][1]))
        else:
            intervals.append((start, end))
    return intervals


def _overlaps(talk: list[tuple[int, int]], event: Heard) -> bool:
    before = bisect_left(talk, (event.end_ms, 0)) - 1
    return before >= 0 and talk[before][1] > event.start_ms
