"""The forms of a transcription."""

from __future__ import annotations

from infra.engines import transcripts
from infra.engines.transcripts import RecognitionResult, Word

WORDS = (Word(" good", 0.5, 0.75, 1.0), Word(" day", 0.8, 1.1, 0.5), Word(" sir", 3661.5, 3662.0, 0.0))
RESULT = RecognitionResult(3700.0, WORDS, "english")


def test_segments_are_cut_at_pauses_and_before_they_grow_long() -> None:
    assert [len(part) for part in transcripts.segments(WORDS)] == [2, 1]
    steady = [Word("la", i / 2, i / 2 + 0.4, 1.0) for i in range(80)]
    parts = transcripts.segments(steady)
    assert [word for part in parts for word in part] == steady
    assert all(part[-1].end - part[0].start <= transcripts.LONGEST_S for part in parts)
    assert len(parts) == 3


def test_verbose_json() -> None:
    body = transcripts.verbose(RESULT, ("word", "segment"), "transcribe")
    assert body["text"] == "good day sir"
    assert (body["task"], body["language"], body["duration"]) == ("transcribe", "english", 3700.0)
    assert "earshot_warnings" not in body
    assert [(part["id"], part["start"], part["end"], part["text"]) for part in body["segments"]] == [
        (0, 0.5, 1.1, "good day"),
        (1, 3661.5, 3662.0, "sir"),
    ]
    assert body["segments"][0]["avg_logprob"] == -0.3466
    assert body["words"][1] == {"word": "day", "start": 0.8, "end": 1.1}


def test_what_was_not_asked_for_is_left_out() -> None:
    assert "words" not in transcripts.verbose(RESULT, (), "transcribe")
    assert "segments" not in transcripts.verbose(RESULT, ("word",), "transcribe")


def test_subtitles() -> None:
    assert transcripts.srt(RESULT) == (
        "1\n00:00:00,500 --> 00:00:01,100\ngood day\n\n2\n01:01:01,500 --> 01:01:02,000\nsir\n"
    )
    assert transcripts.vtt(RESULT) == (
        "WEBVTT\n\n00:00:00.500 --> 00:00:01.100\ngood day\n\n01:01:01.500 --> 01:01:02.000\nsir\n"
    )
    assert transcripts.vtt(RecognitionResult(1.0, ())) == "WEBVTT\n"
