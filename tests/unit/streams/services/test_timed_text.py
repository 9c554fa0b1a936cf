"""Pieces of speech, and their texts as turns of speakers."""

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.clients.transcriptions import Transcription
from streams.services.speech_pieces import MAX_PAUSE_S, SpeechPiece, cut_speech
from streams.services.timed_text import TimedText, stretch, timed_texts, transcript_segments, turn_texts
from streams.voice.diarization import DiarizationTurn
from streams.voice.overlap import DiarizationOverlap
from streams.voice.speech_segments import SpeechSegment
from topics.jobs.payloads import Overlap, Segment, Word

PIECE = SpeechPiece(10_000, 20_000)
TIMES = st.lists(st.tuples(st.floats(0.01, 8), st.floats(0.1, 30)), max_size=40)


def heard(**answer: Any) -> Transcription:
    return msgspec.convert(answer, Transcription)


def word(word: str, start: float | None = 1.0, end: float | None = 2.0) -> dict[str, Any]:
    return {"word": word, "start": start, "end": end}


def sentence(text: str, start: float | None = 1.0, end: float | None = 2.0, **more: Any) -> dict[str, Any]:
    return {"text": text, "start": start, "end": end, **more}


@given(TIMES)
@settings(max_examples=50, deadline=None)
def test_pieces_are_whole_segments_within_length_limit(times: list[tuple[float, float]]) -> None:
    segments, at = [], 0.0
    for pause, length in times:
        segments.append(SpeechSegment(at + pause, at + pause + length))
        at += pause + length
    found = list(cut_speech(segments, 30.0))
    left = iter(segments)
    for piece in found:
        inside = [next(left)]
        assert piece.start_ms / 1000 == pytest.approx(inside[0].start_s, abs=0.001)
        while piece.end_ms / 1000 > inside[-1].end_s + 0.001:
            inside.append(next(left))
            assert inside[-1].start_s - inside[-2].end_s <= MAX_PAUSE_S
        assert piece.end_ms / 1000 == pytest.approx(inside[-1].end_s, abs=0.001)
        assert piece.end_ms - piece.start_ms <= 30_002
    assert next(left, None) is None
    # No two could be merged.
    for one, other in itertools.pairwise(found):
        first = next(s for s in segments if abs(s.start_s * 1000 - other.start_ms) <= 1)
        far = first.start_s * 1000 - one.end_ms > MAX_PAUSE_S * 1000 - 2
        assert far or first.end_s * 1000 - one.start_ms > 30_000 - 2


def test_no_piece_ends_after_audio() -> None:
    assert [piece.end_ms for piece in cut_speech([SpeechSegment(0.0, 107_761 / 16_000)], 30.0)] == [6735]
    frames = [SpeechSegment(0.0, frame * 0.032) for frame in range(1, 900)]
    assert [piece.end_ms for segment in frames for piece in cut_speech([segment], 30.0)] == [*range(32, 28_800, 32)]


def test_words_keep_punctuation_of_text() -> None:
    said = heard(text="¿Sí? Well, no.", words=[word("Sí", 0, 1), word("Well", 1, 2), word("no", 2, 3)])
    found = timed_texts(said, PIECE, by_word=True)
    assert found == [
        TimedText(10_000, 11_000, " ¿Sí? ", word=True),
        TimedText(11_000, 12_000, "Well, ", word=True),
        TimedText(12_000, 13_000, "no.", word=True),
    ]
    assert [turn.text for turn in transcript_segments(found, [])] == ["¿Sí? Well, no."]


@pytest.mark.parametrize(
    ("text", "words", "turns"),
    [
        ("你好吗", [word("你好", 0, 1), word("吗", 1, 2)], ["你好吗"]),
        ("", [word(" Hello", 0, 1), word("there", 1, 2)], ["Hello there"]),
        ("Quite another text.", [word(" Hello", 0, 1), word("there", 1, 2)], ["Hello there"]),
        ("", [word("a", 0, 1), word("b", 2.0, 3), word("c", 4.1, 5)], ["a b", "c"]),
    ],
    ids=["a text without spaces", "no text", "another text", "a pause ends a turn"],
)
def test_words_are_joined_as_in_text_or_by_spaces(text: str, words: list[dict[str, Any]], turns: list[str]) -> None:
    found = timed_texts(heard(text=text, words=words), PIECE, by_word=True)
    assert [turn.text for turn in transcript_segments(found, [])] == turns


def test_words_may_be_nested_in_segments() -> None:
    said = heard(text="A b.", segments=[sentence("A b.", 0, 2, words=[word("A", 0, 1), word("b", 1, 2)])])
    assert [unit.text for unit in timed_texts(said, PIECE, by_word=True)] == [" A ", "b."]
    assert [unit.text for unit in timed_texts(said, PIECE, by_word=False)] == [" A b."]


def test_segments_are_turns_without_diarization() -> None:
    said = heard(text="A. B.", segments=[sentence("A.", 0, 1), sentence("B.", 1, 2)], words=[word("A"), word("B")])
    found = list(transcript_segments(timed_texts(said, PIECE, by_word=False), []))
    assert [(turn.start_ms, turn.end_ms, turn.text) for turn in found] == [(10000, 11000, "A."), (11000, 12000, "B.")]
    # With diarization, one speaker's two segments are one turn.
    whole = heard(text="A. B.", segments=[sentence("A.", 0, 1), sentence("B.", 1, 2)])
    assert [turn.text for turn in transcript_segments(timed_texts(whole, PIECE, by_word=True), [])] == ["A. B."]


def test_parts_without_times_take_time_of_previous_part() -> None:
    said = heard(text="a b c", words=[word("a", 1, 2), word("b", None, None), word("c", 3, 4)])
    times = [(unit.start_ms, unit.end_ms) for unit in timed_texts(said, PIECE, by_word=True)]
    assert times == [(11_000, 12_000), (11_000, 11_000), (13_000, 14_000)]
    whole = heard(text="a b", words=[word("a", None, None)], segments=[sentence("a b", None, None)])
    assert timed_texts(whole, PIECE, by_word=True) == [TimedText(10_000, 20_000, " a b")]


@given(st.lists(st.tuples(st.floats(-1e300, 1e300), st.floats(-1e300, 1e300)), max_size=10), st.booleans())
@settings(max_examples=50, deadline=None)
def test_times_stay_ordered_and_within_piece(times: list[tuple[float, float]], by_word: bool) -> None:
    words = [word("x", start, end) for start, end in times]
    found = timed_texts(heard(text="", words=words), PIECE, by_word=by_word)
    assert len(found) == len(times)
    at = PIECE.start_ms
    for unit in found:
        assert at <= unit.start_ms <= unit.end_ms <= PIECE.end_ms
        at = unit.start_ms


def test_blank_text_yields_no_units() -> None:
    assert timed_texts(heard(text=" "), PIECE, by_word=True) == []
    assert timed_texts(heard(text=" ", segments=[sentence(" ")]), PIECE, by_word=False) == []


def test_text_goes_to_most_overlapping_or_nearest_speaker() -> None:
    speakers = [DiarizationTurn(1, 2, 0), DiarizationTurn(2, 4, 1), DiarizationTurn(6, 8, 2)]
    times = {
        "before": (0, 500, 0),
        "most of it in the second": (1500, 3000, 1),
        "in no turn, nearer to the second": (4100, 4500, 1),
        "in no turn, nearer to the third": (5600, 5900, 2),
        "over all of them": (0, 8000, 1),
        "after": (9000, 9500, 2),
        "of no length": (7000, 7000, 2),
    }
    for said, (start, end, speaker) in times.items():
        (turn,) = transcript_segments([TimedText(start, end, said)], speakers)
        assert turn.speaker == speaker, said


@pytest.mark.parametrize(
    ("speakers", "speaker"),
    [
        ([(0, 1.2, 0), (1.2, 3, 1)], 1),
        ([(0, 1.9, 0), (1.9, 3, 1)], 0),
        ([(0, 1.3, 0), (1.3, 1.7, 1), (1.7, 3, 0)], 0),
        ([(0, 1.05, 1), (1.05, 1.4, 0), (1.4, 1.6, 1), (1.6, 1.95, 0), (1.95, 3, 1)], 0),
        ([(0, 1.4, 1), (1.4, 1.6, 0), (1.6, 1.9, 0), (1.9, 3, 1)], 1),
    ],
)
def test_word_goes_to_speaker_of_most_of_it(speakers: list[tuple[float, float, int]], speaker: int) -> None:
    turns = [DiarizationTurn(*turn) for turn in speakers]
    (segment,) = transcript_segments([TimedText(1000, 2000, "word")], turns)
    assert segment.speaker == speaker
    (number,) = [number for number, text in enumerate(turn_texts([TimedText(1000, 2000, "word")], turns)) if text]
    assert turns[number].speaker == speaker


def test_long_turn_is_split() -> None:
    found = list(transcript_segments([TimedText(n, n, "x" * 999 + " ") for n in range(25)], []))
    assert [len(turn.text) for turn in found] == [9999, 9999, 4999]


@given(TIMES, st.lists(st.tuples(st.integers(0, 900), st.integers(0, 300)), max_size=20))
@settings(max_examples=50, deadline=None)
def test_chosen_turn_has_largest_overlap(times: list[tuple[float, float]], said: list[tuple[int, int]]) -> None:
    speakers: list[DiarizationTurn] = []
    at = 0.0
    for pause, length in times[:8]:
        speakers.append(DiarizationTurn(at + pause, at + pause + length, len(speakers)))
        at += pause + length
    for start, length in said:
        unit = TimedText(start * 100, (start + length) * 100, "x")

        def overlap(turn: DiarizationTurn, unit: TimedText = unit) -> int:
            return min(unit.end_ms, round(turn.end_s * 1000)) - max(unit.start_ms, round(turn.start_s * 1000))

        (found,) = transcript_segments([unit], speakers)
        assert not speakers or overlap(speakers[found.speaker]) == max(map(overlap, speakers))


def test_each_turn_has_its_own_text() -> None:
    """Including two consecutive turns of one speaker, and a turn without words."""
    turns = [(0.0, 1.0, 0), (2.0, 3.0, 0), (3.0, 4.0, 1), (5.0, 6.0, 0)]
    speakers = [DiarizationTurn(*turn) for turn in turns]
    said = [(100, " Well,"), (900, " yes"), (1300, " or"), (2500, " no"), (5500, " Bye.")]
    found = turn_texts([TimedText(start, start + 200, text) for start, text in said], speakers)
    assert found == ["Well, yes or", "no", "", "Bye."]
    assert turn_texts([TimedText(0, 1, "x")], []) == []


def test_segments_include_words_on_request() -> None:
    answer = heard(text="Good morning, all.", words=[word("Good", 1, 2), word("morning", 2, 3), word("all", 7, 8)])
    texts = timed_texts(answer, PIECE, by_word=True)
    first, second = transcript_segments(texts, [], with_words=True)
    assert (first.text, second.text) == ("Good morning,", "all.")
    assert first.words == (Word(11_000, 12_000, "Good"), Word(12_000, 13_000, "morning,"))
    assert second.words == (Word(17_000, 18_000, "all."),)
    assert [segment.words for segment in transcript_segments(texts, [])] == [(), ()]
    # An engine that times only sentences gives no words.
    whole = timed_texts(heard(text="Good morning.", segments=[sentence("Good morning.")]), PIECE, by_word=True)
    assert [segment.words for segment in transcript_segments(whole, [], with_words=True)] == [()]


def test_segments_are_stretched_to_their_turns() -> None:
    turns = [DiarizationTurn(0.5, 3.0, 0), DiarizationTurn(3.0, 4.0, 1), DiarizationTurn(4.5, 9.0, 0)]
    said = [(1000, 2000, "Well.", 0), (3100, 3500, "Yes.", 1), (6000, 7000, "So.", 0), (9500, 9900, "Oh.", 0)]
    segments = [Segment(*one) for one in said]
    stretched = stretch(segments, turns)
    assert [(one.start_ms, one.end_ms) for one in stretched] == [(500, 3000), (3000, 4000), (5000, 8000), (9500, 9900)]
    assert [one.text for one in stretched] == [one.text for one in segments]
    assert stretch(segments, []) == segments


def test_segments_report_overlapping_speakers_and_times() -> None:
    turns = [DiarizationTurn(0.0, 4.0, 0), DiarizationTurn(4.0, 8.0, 1), DiarizationTurn(8.0, 9.0, 2)]
    segments = [Segment(0, 2000, "a", 0), Segment(2000, 4000, "b", 0), Segment(4000, 8000, "c", 1)]
    parts = [(1.5, 2.5, 0, 1), (3.8, 4.0, 0, 1), (4.0, 4.2, 1, 0), (7.0, 7.25, 1, 2), (8.5, 9.0, 2, 1)]
    first, second, third = stretch(segments, turns, [DiarizationOverlap(*part) for part in parts])
    assert (first.overlaps, first.overlap_ms) == ((Overlap(1500, 2000, 1),), 500)
    assert (second.overlaps, second.overlap_ms) == ((Overlap(2000, 2500, 1), Overlap(3800, 4000, 1)), 700)
    assert (third.overlaps, third.overlap_ms) == ((Overlap(4000, 4200, 0), Overlap(7000, 7250, 2)), 450)


@given(
    words=st.lists(st.tuples(st.integers(0, 900), st.integers(0, 900), st.integers(0, 1)), max_size=8),
    talks=st.lists(st.tuples(st.integers(0, 900), st.integers(1, 3000), st.integers(0, 1)), max_size=8),
)
def test_stretching_never_shortens_or_overlaps_segments(
    words: list[tuple[int, int, int]], talks: list[tuple[int, int, int]]
) -> None:
    segments, turns, at = [], [], 0
    for pause, length, speaker in words:
        segments.append(Segment(at + pause, at + pause + length, "a", speaker))
        at += pause + length
    at = 0
    for pause, length, speaker in talks:
        turns.append(DiarizationTurn((at + pause) / 1000, (at + pause + length) / 1000, speaker))
        at += pause + length
    stretched = stretch(segments, turns)
    for before, after in zip(segments, stretched, strict=True):
        assert after.start_ms <= before.start_ms <= before.end_ms <= after.end_ms
    assert all(one.end_ms <= other.start_ms for one, other in itertools.pairwise(stretched))
