"""Turns a speech engine's answers into speaker turns, with times of the whole recording and the punctuation."""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

import msgspec

from streams.clients.transcriptions import TranscribedSegment, TranscribedWord, Transcription
from streams.services.speech_pieces import SpeechPiece
from streams.voice.diarization import DiarizationTurn
from streams.voice.overlap import DiarizationOverlap
from topics.jobs.payloads import Overlap, Segment, Word

Part = TypeVar("Part", TranscribedWord, TranscribedSegment)

#: A longer pause ends a segment.
PAUSE_MS: Final = 1000
#: So do this many characters, so that a segment fits any record.
MAX_CHARACTERS: Final = 10_000
#: Characters allowed between two adjacent words of a text: punctuation, or words without times.
MAX_GAP_CHARACTERS: Final = 60


class TimedText(msgspec.Struct, frozen=True, array_like=True):
    """The smallest stretch of text with times in ms: a word, or more if the engine returns no word times."""

    start_ms: int
    end_ms: int
    #: Includes the surrounding white space: adjacent texts are joined without a separator.
    text: str
    #: Always a segment of its own.
    alone: bool = False
    word: bool = False


def timed_texts(answer: Transcription, piece: SpeechPiece, *, by_word: bool) -> list[TimedText]:
    """Return the texts of a piece in order of time, all inside the piece.

    With `by_word` and word times, they are words; otherwise the engine's segments, or words, or one text for the
    whole piece.
    """
    sentences = _parts_with_times(answer.segments or ())
    words = _parts_with_times(answer.words or tuple(word for sentence in sentences for word in sentence.words or ()))
    if words and (by_word or not sentences):
        return _place(_split_text([word.word for word in words], answer.text), words, piece, alone=False, word=True)
    if sentences:
        texts = _split_text([sentence.text for sentence in sentences], answer.text)
        return _place(texts, sentences, piece, alone=not by_word)
    return [TimedText(piece.start_ms, piece.end_ms, f" {answer.text}", not by_word)] if answer.text.strip() else []


def transcript_segments(
    texts: Iterable[TimedText], turns: Sequence[DiarizationTurn], *, with_words: bool = False
) -> Iterator[Segment]:
    """Yield a segment, not yet named, for each stretch of text without a pause or a change of speaker.

    A text belongs to the speaker whose turns cover most of it, else to the speaker of the nearest turn. Turns are in
    order of time and do not overlap; without turns, there is one speaker. `with_words` adds the words to segments.
    """
    starts, ends = _times(turns)
    group: list[TimedText] = []
    speaker = characters = 0
    for text in texts:
        number = turns[_turn_of(text, turns, starts, ends)].speaker if turns else 0
        if group and (
            text.alone
            or number != speaker
            or text.start_ms - group[-1].end_ms > PAUSE_MS
            or characters + len(text.text) > MAX_CHARACTERS
        ):
            yield _segment(group, speaker, with_words)
            group, characters = [], 0
        group.append(text)
        speaker, characters = number, characters + len(text.text)
    if group:
        yield _segment(group, speaker, with_words)


def stretch(
    segments: Sequence[Segment], turns: Sequence[DiarizationTurn], overlaps: Sequence[DiarizationOverlap] = ()
) -> list[Segment]:
    """Stretch segments to the limits of their speakers' turns, by at most `PAUSE_MS`, and add `overlaps`.

    Engines report words too late and end them too early. Stretching adds no overlap between segments. `turns` and
    `overlaps` are in order of time and do not overlap.
    """
    starts, ends = _times(turns)
    overlap_starts, overlap_ends = _times(overlaps)
    result: list[Segment] = []
    for number, segment in enumerate(segments):
        own = [
            turn
            for turn in range(bisect_right(ends, segment.start_ms), bisect_left(starts, segment.end_ms))
            if turns[turn].speaker == segment.speaker
        ]
        start, end = segment.start_ms, segment.end_ms
        if own:
            earliest = max(result[-1].end_ms if result else 0, start - PAUSE_MS, starts[own[0]])
            latest = segments[number + 1].start_ms if number + 1 < len(segments) else ends[own[-1]]
            start, end = min(start, earliest), max(end, min(end + PAUSE_MS, latest, ends[own[-1]]))
        others = tuple(
            Overlap(max(start, overlap_starts[index]), min(end, overlap_ends[index]), overlaps[index].other)
            for index in range(bisect_right(overlap_ends, start), bisect_left(overlap_starts, end))
            if overlaps[index].speaker == segment.speaker
        )
        overlap_ms = sum(other.end_ms - other.start_ms for other in others)
        segment = msgspec.structs.replace(segment, start_ms=start, end_ms=end, overlap_ms=overlap_ms, overlaps=others)
        result.append(segment)
    return result


def turn_texts(texts: Iterable[TimedText], turns: Sequence[DiarizationTurn]) -> list[str]:
    """Return the text of each turn, "" for a silent one; texts go to turns as in `transcript_segments`."""
    starts, ends = _times(turns)
    by_turn = [""] * len(turns)
    for text in texts if turns else ():
        by_turn[_turn_of(text, turns, starts, ends)] += text.text
    return [" ".join(text.split()) for text in by_turn]


def _times(parts: Sequence[DiarizationTurn | DiarizationOverlap]) -> tuple[list[int], list[int]]:
    return [round(part.start_s * 1000) for part in parts], [round(part.end_s * 1000) for part in parts]


def _segment(texts: Sequence[TimedText], speaker: int, with_words: bool) -> Segment:
    text = "".join(part.text for part in texts)
    words = tuple(Word(part.start_ms, part.end_ms, part.text.strip()) for part in texts if with_words and part.word)
    return Segment(texts[0].start_ms, texts[-1].end_ms, " ".join(text.split()), speaker, words=words)


def _turn_of(text: TimedText, turns: Sequence[DiarizationTurn], starts: Sequence[int], ends: Sequence[int]) -> int:
    first, last = bisect_right(ends, text.start_ms), bisect_left(starts, text.end_ms)
    # One more turn on either side: for a turn that does not overlap, the overlap is minus the distance.
    candidates = range(max(0, first - 1), min(len(starts), last + 1))
    overlaps = {turn: min(text.end_ms, ends[turn]) - max(text.start_ms, starts[turn]) for turn in candidates}
    covered: Counter[int] = Counter()
    for turn, overlap in overlaps.items():
        covered[turns[turn].speaker] += max(0, overlap)
    most = max(covered.values())
    return max((turn for turn in candidates if covered[turns[turn].speaker] == most), key=overlaps.__getitem__)


def _split_text(parts: Sequence[str], text: str) -> list[str]:
    """Return the parts as they appear in the whole text, each with the characters up to the next part.

    Engines often omit punctuation and white space from words. If the parts do not appear in the text in order,
    return them unchanged, each after a space.
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
    """Return the parts if any of them has a time, else none."""
    return parts if any(part.start is not None for part in parts) else ()


def _place(
    texts: Sequence[str],
    parts: Sequence[TranscribedWord | TranscribedSegment],
    piece: SpeechPiece,
    *,
    alone: bool,
    word: bool = False,
) -> list[TimedText]:
    """Give texts the times of their parts, inside the piece and in order of time."""
    placed: list[TimedText] = []
    earliest = piece.start_ms
    for text, part in zip(texts, parts, strict=True):
        start = earliest if part.start is None else _clip(part.start, earliest, piece)
        end = start if part.end is None else _clip(part.end, start, piece)
        if text.strip():
            placed.append(TimedText(start, end, text, alone, word))
        # Not the end: one wrong end would displace everything after it.
        earliest = start
    return placed


def _clip(seconds: float, earliest_ms: int, piece: SpeechPiece) -> int:
    """Return seconds of the piece as a time of the recording, inside the piece and not before `earliest_ms`."""
    length = piece.end_ms - piece.start_ms
    return max(earliest_ms, piece.start_ms + round(1000 * min(max(seconds, 0.0), length / 1000)))
