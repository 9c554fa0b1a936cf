"""What an engine heard, as turns of speakers: times of the whole recording, the engine's own punctuation kept."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

import msgspec

from streams.clients.transcriptions import TranscribedSegment, TranscribedWord, Transcription
from streams.services.pieces import Piece
from streams.voice.diarization import SpeakerTurn
from topics.jobs.payloads import Segment

Part = TypeVar("Part", TranscribedWord, TranscribedSegment)

#: A longer pause ends a turn.
PAUSE_MS: Final = 1000
#: So does this many characters, so that a turn fits any record.
MOST_CHARACTERS: Final = 10_000
#: Characters that may lie between words of the same text: punctuation, or what the engine gave no time for.
STRAY: Final = 60


class Unit(msgspec.Struct, frozen=True, array_like=True):
    """The least that has times: a word, or more where the engine does not say; milliseconds."""

    start_ms: int
    end_ms: int
    #: With the white space around it: a text is its units in a row.
    text: str
    #: A turn of its own, whatever is beside it.
    alone: bool = False


def units(heard: Transcription, piece: Piece, *, by_word: bool) -> list[Unit]:
    """Return the units of a piece in order of time, none outside of it.

    Units are words where the engine gives them and `by_word` is set; else its segments, else words, else all of it.
    """
    sentences = _timed(heard.segments or ())
    words = _timed(heard.words or tuple(word for sentence in sentences for word in sentence.words or ()))
    if words and (by_word or not sentences):
        return _placed(_within([word.word for word in words], heard.text), words, piece, alone=False)
    if sentences:
        return _placed(_within([part.text for part in sentences], heard.text), sentences, piece, alone=not by_word)
    return [Unit(piece.start_ms, piece.end_ms, f" {heard.text}", not by_word)] if heard.text.strip() else []


def turns(found: Iterable[Unit], speakers: Sequence[SpeakerTurn]) -> Iterator[Segment]:
    """Yield one segment, still without a name, for each uninterrupted turn of one speaker.

    A unit is said by the speaker whose turn overlaps it most, or is nearest. Turns are in order of time and do not
    overlap; without any there is one speaker.
    """
    starts, ends = _times(speakers)
    said: list[Unit] = []
    speaker = characters = 0
    for unit in found:
        number = speakers[_nearest(unit, starts, ends)].speaker if speakers else 0
        if said and (
            unit.alone
            or number != speaker
            or unit.start_ms - said[-1].end_ms > PAUSE_MS
            or characters + len(unit.text) > MOST_CHARACTERS
        ):
            yield _segment(said, speaker)
            said, characters = [], 0
        said.append(unit)
        speaker, characters = number, characters + len(unit.text)
    if said:
        yield _segment(said, speaker)


def texts(found: Iterable[Unit], speakers: Sequence[SpeakerTurn]) -> list[str]:
    """Return what is said in each turn, "" where nothing is; a unit is of the turn that `turns` would give it to."""
    starts, ends = _times(speakers)
    said = [""] * len(speakers)
    for unit in found if speakers else ():
        said[_nearest(unit, starts, ends)] += unit.text
    return [" ".join(text.split()) for text in said]


def _times(speakers: Sequence[SpeakerTurn]) -> tuple[list[int], list[int]]:
    return [round(turn.start_s * 1000) for turn in speakers], [round(turn.end_s * 1000) for turn in speakers]


def _segment(said: Sequence[Unit], speaker: int) -> Segment:
    text = "".join(unit.text for unit in said)
    return Segment(said[0].start_ms, said[-1].end_ms, " ".join(text.split()), speaker)


def _nearest(unit: Unit, starts: Sequence[int], ends: Sequence[int]) -> int:
    """Return the index of the turn that overlaps a unit most, or is nearest to it."""
    first, last = bisect_right(ends, unit.start_ms), bisect_left(starts, unit.end_ms)
    # One more on either side: where none overlaps, the overlap is minus the distance.
    around = range(max(0, first - 1), min(len(starts), last + 1))
    return max(around, key=lambda turn: min(unit.end_ms, ends[turn]) - max(unit.start_ms, starts[turn]))


def _within(parts: Sequence[str], text: str) -> list[str]:
    """Return the parts as they stand in the whole text, with what lies between them.

    Words often come without the punctuation and the white space that the text has. Parts that do not stand in the
    text in their order are put a space apart.
    """
    places, at = [], 0
    for part in parts:
        place = text.find(part.strip(), at, at + len(part) + STRAY)
        if place < 0:
            return [f" {part.strip()}" for part in parts]
        places.append(place)
        at = place + len(part.strip())
    places[:1] = [0]
    found = [text[start:end] for start, end in zip(places, [*places[1:], len(text)], strict=True)]
    # A piece follows a pause, so that its text begins with a space.
    return [f" {found[0]}", *found[1:]]


def _timed(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Return the parts where the engine knows when any of them is said, else none."""
    return parts if any(part.start is not None for part in parts) else ()


def _placed(
    texts: Sequence[str], parts: Sequence[TranscribedWord | TranscribedSegment], piece: Piece, *, alone: bool
) -> list[Unit]:
    found: list[Unit] = []
    before = piece.start_ms
    for text, part in zip(texts, parts, strict=True):
        start = before if part.start is None else _clipped(part.start, before, piece)
        end = start if part.end is None else _clipped(part.end, start, piece)
        if text.strip():
            found.append(Unit(start, end, text, alone))
        # Not the end: one that is wrong would push aside all that follows.
        before = start
    return found


def _clipped(seconds: float, least_ms: int, piece: Piece) -> int:
    """Return a time of the recording, inside the piece and not before `least_ms`."""
    length = piece.end_ms - piece.start_ms
    return max(least_ms, piece.start_ms + round(1000 * min(max(seconds, 0.0), length / 1000)))
