"""From a speech engine's answers to the turns of speakers: times of the whole recording, the engine's punctuation."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

import msgspec

from streams.clients.transcriptions import TranscribedSegment, TranscribedWord, Transcription
from streams.services.speech_pieces import SpeechPiece
from streams.voice.diarization import DiarizationTurn
from topics.jobs.payloads import Segment

Part = TypeVar("Part", TranscribedWord, TranscribedSegment)

#: A longer pause ends a segment.
PAUSE_MS: Final = 1000
#: So does this many characters, so that a segment fits any record.
MAX_CHARACTERS: Final = 10_000
#: Characters that may lie between two words of the same text: punctuation, or words without times.
MAX_GAP_CHARACTERS: Final = 60


class TimedText(msgspec.Struct, frozen=True, array_like=True):
    """The smallest stretch of text with times: a word, or more where the engine gives no word times; milliseconds."""

    start_ms: int
    end_ms: int
    #: With the white space around it: texts in a row are joined without a separator.
    text: str
    #: A segment of its own, whatever is beside it.
    alone: bool = False


def timed_texts(answer: Transcription, piece: SpeechPiece, *, by_word: bool) -> list[TimedText]:
    """Return the texts of a piece in order of time, all inside the piece.

    They are words where the engine gives word times and `by_word` is set; else the engine's segments, else words, else
    one text for the whole piece.
    """
    sentences = _parts_with_times(answer.segments or ())
    words = _parts_with_times(answer.words or tuple(word for sentence in sentences for word in sentence.words or ()))
    if words and (by_word or not sentences):
        return _place(_split_text([word.word for word in words], answer.text), words, piece, alone=False)
    if sentences:
        texts = _split_text([sentence.text for sentence in sentences], answer.text)
        return _place(texts, sentences, piece, alone=not by_word)
    return [TimedText(piece.start_ms, piece.end_ms, f" {answer.text}", not by_word)] if answer.text.strip() else []


def transcript_segments(texts: Iterable[TimedText], turns: Sequence[DiarizationTurn]) -> Iterator[Segment]:
    """Yield a segment, still without a name, for each stretch of text without a pause or a change of speaker.

    A text belongs to the speaker of the turn that overlaps it most, or else of the nearest turn. Turns are in order of
    time and do not overlap; without turns there is one speaker.
    """
    starts, ends = _turn_times(turns)
    group: list[TimedText] = []
    speaker = characters = 0
    for text in texts:
        number = turns[_nearest(text, starts, ends)].speaker if turns else 0
        if group and (
            text.alone
            or number != speaker
            or text.start_ms - group[-1].end_ms > PAUSE_MS
            or characters + len(text.text) > MAX_CHARACTERS
        ):
            yield _segment(group, speaker)
            group, characters = [], 0
        group.append(text)
        speaker, characters = number, characters + len(text.text)
    if group:
        yield _segment(group, speaker)


def turn_texts(texts: Iterable[TimedText], turns: Sequence[DiarizationTurn]) -> list[str]:
    """Return the text of each turn, "" where nothing is said; texts go to turns as in `transcript_segments`."""
    starts, ends = _turn_times(turns)
    by_turn = [""] * len(turns)
    for text in texts if turns else ():
        by_turn[_nearest(text, starts, ends)] += text.text
    return [" ".join(text.split()) for text in by_turn]


def _turn_times(turns: Sequence[DiarizationTurn]) -> tuple[list[int], list[int]]:
    return [round(turn.start_s * 1000) for turn in turns], [round(turn.end_s * 1000) for turn in turns]


def _segment(texts: Sequence[TimedText], speaker: int) -> Segment:
    text = "".join(part.text for part in texts)
    return Segment(texts[0].start_ms, texts[-1].end_ms, " ".join(text.split()), speaker)


def _nearest(text: TimedText, starts: Sequence[int], ends: Sequence[int]) -> int:
    """Return the index of the turn that overlaps a text most, or else is nearest to it."""
    first, last = bisect_right(ends, text.start_ms), bisect_left(starts, text.end_ms)
    # One more turn on either side: where no turn overlaps, the overlap is minus the distance.
    candidates = range(max(0, first - 1), min(len(starts), last + 1))
    return max(candidates, key=lambda turn: min(text.end_ms, ends[turn]) - max(text.start_ms, starts[turn]))


def _split_text(parts: Sequence[str], text: str) -> list[str]:
    """Return the parts as they stand in the whole text, each with the characters up to the next part.

    Words often come without the punctuation and the white space that the text has. Parts that do not stand in the text
    in their order are returned as they are, with a space before each.
    """
    starts, at = [], 0
    for part in parts:
        start = text.find(part.strip(), at, at + len(part) + MAX_GAP_CHARACTERS)
        if start < 0:
            return [f" {part.strip()}" for part in parts]
        starts.append(start)
        at = start + len(part.strip())
    starts[:1] = [0]
    first, *others = [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]
    # A piece follows a pause, so its text begins with a space.
    return [f" {first}", *others]


def _parts_with_times(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Return the parts if the engine knows the time of any of them, else none."""
    return parts if any(part.start is not None for part in parts) else ()


def _place(
    texts: Sequence[str], parts: Sequence[TranscribedWord | TranscribedSegment], piece: SpeechPiece, *, alone: bool
) -> list[TimedText]:
    """Return texts with the times of their parts, inside the piece and in order of time."""
    placed: list[TimedText] = []
    earliest = piece.start_ms
    for text, part in zip(texts, parts, strict=True):
        start = earliest if part.start is None else _clip(part.start, earliest, piece)
        end = start if part.end is None else _clip(part.end, start, piece)
        if text.strip():
            placed.append(TimedText(start, end, text, alone))
        # Not the end: one wrong end would push aside all that follows.
        earliest = start
    return placed


def _clip(seconds: float, earliest_ms: int, piece: SpeechPiece) -> int:
    """Return a time of the recording, inside the piece and not before `earliest_ms`."""
    length = piece.end_ms - piece.start_ms
    return max(earliest_ms, piece.start_ms + round(1000 * min(max(seconds, 0.0), length / 1000)))
