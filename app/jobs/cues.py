"""What is shown when: turns of speech and sound events as cues of captions, and the two formats of caption files.

A cue has at most two lines and stays for at most seven seconds, as in broadcast captions. A turn that says more or
lasts longer becomes several cues, which share its time by their length. A sound event begins with the first of the
consecutive windows that report it, of which one may be missing in between, and is told once, when it begins.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from operator import attrgetter
from textwrap import wrap
from typing import Final

import msgspec

from app.jobs.rendering import speaker
from topics.geometry import SENSE
from topics.jobs.payloads import Segment

LINE: Final = 42
LINES: Final = 2
LONGEST_MS: Final = 7000
#: Fewer characters than this are shown together however slowly they are said.
_SHORTEST: Final = 16
#: Windows without it that a sound event may have inside.
_GAP: Final = 1
_SPEECH: Final = re.compile(r"(.*[ _])?(speech|whisper|conversation|narration)", re.IGNORECASE)


class Cue(msgspec.Struct, frozen=True):
    """Lines of text from one time to another, in milliseconds."""

    start_ms: int
    end_ms: int
    #: Who speaks; "" for a sound.
    voice: str
    lines: tuple[str, ...]


class Heard(msgspec.Struct, frozen=True):
    """One sound event."""

    start_ms: int
    end_ms: int
    tag: str
    #: Orders the events of one moment: what the tag missed to its threshold at its best, as stored.
    missing: int


class Hearing:
    """Puts sound events together from windows that are told in order."""

    def __init__(self) -> None:
        #: By tag: first and last window, and the best of them.
        self._open: dict[str, tuple[int, int, int]] = {}
        self._events: list[Heard] = []

    def window(self, number: int, tag: str, missing: int) -> None:
        """Tell of a tag that a window reports."""
        known = self._open.get(tag)
        if known is not None and number - known[1] <= 1 + _GAP:
            self._open[tag] = (known[0], number, min(known[2], missing))
            return
        if known is not None:
            self._close(tag, *known)
        self._open[tag] = (number, number, missing)

    def events(self) -> list[Heard]:
        """Return every event, once all windows were told."""
        for tag, known in self._open.items():
            self._close(tag, *known)
        self._open.clear()
        return self._events

    def _close(self, tag: str, first: int, last: int, missing: int) -> None:
        end = last * SENSE.hop_ms + SENSE.window_ms
        self._events.append(Heard(first * SENSE.hop_ms, end, tag, missing))


def ordered(turns: Sequence[Segment], events: Iterable[Heard], named: bool) -> list[Cue]:
    """Return the cues of a recording in order of time."""
    cues = [cue for turn in turns for cue in spoken(turn, named)]
    cues += sounded(events, turns)
    return sorted(cues, key=attrgetter("start_ms", "end_ms"))


def spoken(segment: Segment, named: bool) -> list[Cue]:
    """Return the cues of a turn; `named`: the name of who speaks is part of the first cue's text."""
    voice = " ".join((segment.name or speaker(segment)).replace("_", " ").split())
    text = " ".join(segment.text.split())
    if not text:
        return []
    if named:
        text = f"{voice}: {text}"
    lasts = max(segment.end_ms - segment.start_ms, 1)
    # As many characters as are said while a cue stays.
    room = max(_SHORTEST, min(LINE * LINES, len(text) * LONGEST_MS // lasts))
    groups = list(_paired(_wrapped(text, min(LINE, room)), room))
    # When each begins and the last ends, in characters said.
    said = list(accumulate((sum(map(len, lines)) for lines in groups), initial=0))
    cues: list[Cue] = []
    for number, lines in enumerate(groups):
        begin, end = (segment.start_ms + lasts * place // said[-1] for place in said[number : number + 2])
        cues.append(Cue(begin, max(begin + 1, min(end, begin + LONGEST_MS)), voice, lines))
    return cues


def _wrapped(text: str, width: int) -> list[str]:
    return [text] if len(text) <= width else wrap(text, width)


def _paired(lines: Iterable[str], room: int) -> Iterator[tuple[str, ...]]:
    kept: list[str] = []
    for line in lines:
        if kept and (len(kept) == LINES or sum(map(len, kept)) + len(kept) + len(line) > room):
            yield tuple(kept)
            kept = []
        kept.append(line)
    if kept:
        yield tuple(kept)


def sounded(events: Iterable[Heard], turns: Sequence[Segment]) -> Iterator[Cue]:
    """Yield the cues of sound events; what only says that somebody speaks is left out where the words are there."""
    talk = _merged(turns)
    by_start: dict[int, list[Heard]] = {}
    for event in events:
        if not (_SPEECH.fullmatch(event.tag) and _overlaps(talk, event)):
            by_start.setdefault(event.start_ms, []).append(event)
    for start, together in by_start.items():
        together.sort(key=lambda event: event.missing)
        names = " ".join(f"[{event.tag.replace('_', ' ')}]" for event in together)
        end = min(max(event.end_ms for event in together), start + LONGEST_MS)
        yield Cue(start, end, "", tuple(_wrapped(names, LINE)[:LINES]))


def _merged(turns: Sequence[Segment]) -> list[tuple[int, int]]:
    """Return when anybody speaks, as intervals that do not touch."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted((turn.start_ms, turn.end_ms) for turn in turns):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _overlaps(talk: list[tuple[int, int]], event: Heard) -> bool:
    before = bisect_left(talk, (event.end_ms, 0)) - 1
    return before >= 0 and talk[before][1] > event.start_ms


def webvtt(cues: Iterable[Cue]) -> Iterator[bytes]:
    """Yield a WebVTT file (https://www.w3.org/TR/webvtt1/): who speaks stands in a voice tag."""
    yield b"WEBVTT\n\n"
    for cue in cues:
        text = "\n".join(map(_escaped, cue.lines))
        voice = f"<v {_escaped(cue.voice)}>" if cue.voice else ""
        yield f"{_time(cue.start_ms, '.')} --> {_time(cue.end_ms, '.')}\n{voice}{text}\n\n".encode()


def subrip(cues: Iterable[Cue]) -> Iterator[bytes]:
    """Yield a SubRip file. It has no escapes, so an arrow, which it gives a meaning, is shortened."""
    for number, cue in enumerate(cues, 1):
        text = "\n".join(cue.lines).replace("-->", "->")
        yield f"{number}\n{_time(cue.start_ms, ',')} --> {_time(cue.end_ms, ',')}\n{text}\n\n".encode()


def _time(ms: int, point: str) -> str:
    minutes, left = divmod(ms, 60_000)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{left // 1000:02d}{point}{left % 1000:03d}"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
