"""From a recording to a transcript: decoded, cut into utterances, in every format, with keywords and languages."""

import io

import numpy as np
import pytest

from infra.engines import recording
from infra.engines.speech import transcripts
from infra.engines.speech.transcripts import RecognitionResult, Word
from infra.engines.speech.utterances import utterances
from infra.engines.text import text_analysis
from streams.voice import activity
from streams.voice.speech_segments import SpeechSegment
from tests.audio import encoded, sine
from topics.errors import AudioError


@pytest.mark.parametrize(("rate", "form"), [(16_000, "WAV"), (44_100, "OGG"), (8_000, "FLAC")])
def test_recordings_are_converted_to_mono_at_requested_rate(rate: int, form: str) -> None:
    tone = 0.5 * sine(2.0, rate=rate)
    found = recording.load(io.BytesIO(encoded(np.stack((tone, np.zeros_like(tone)), axis=1), rate, form)), 16_000)
    assert found.dtype == np.float32
    assert found.ndim == 1
    assert len(found) == pytest.approx(32_000, abs=2)
    assert np.argmax(np.abs(np.fft.rfft(found))) == pytest.approx(880, abs=1)
    assert np.abs(found).max() == pytest.approx(0.25, abs=0.03)


@pytest.mark.parametrize("rate", [16_000, 48_000])
def test_slow_decoding_is_rejected(monkeypatch: pytest.MonkeyPatch, rate: int) -> None:
    # Silent samples take almost no bytes.
    silence = io.BytesIO(encoded(np.zeros((20 * rate, 8), np.int16), rate, "FLAC"))
    monkeypatch.setattr(recording, "CPU_SECONDS", 0.0001)
    with pytest.raises(AudioError, match="exceeded its CPU or memory limit"):
        recording.load(silence, 16_000)


def test_invalid_or_too_long_audio_is_rejected() -> None:
    with pytest.raises(AudioError, match="not a supported audio file"):
        recording.load(io.BytesIO(b"no audio at all" * 10), 16_000)
    with pytest.raises(AudioError, match="longer than 600 s"):
        recording.load(io.BytesIO(encoded(np.zeros(1000 * (recording.LONGEST_S + 1), np.int16), 1000)), 16_000)


def test_long_speech_is_cut_into_disjoint_utterances(monkeypatch: pytest.MonkeyPatch) -> None:
    segments = [SpeechSegment(start, start + 8.0) for start in (0.1, 8.2, 16.3, 40.0)]

    class Activity:
        def segments(self, blocks: object, settings: object) -> list[SpeechSegment]:
            return segments

    monkeypatch.setattr(activity, "bundled_detector", Activity)
    samples = np.zeros(49 * 16000, np.float32)
    cut = list(utterances(samples, 20.0))
    assert [(one.start_s, one.end_s) for one in cut] == [
        (0.0, pytest.approx(16.3)),
        (pytest.approx(16.2), pytest.approx(24.45)),
        (39.85, 48.15),
    ]
    assert [part for one in cut for part in one.speech] == segments
    assert [len(one.cut(samples)) for one in cut] == [round(16000 * (one.end_s - one.start_s)) for one in cut]


def test_silence_has_no_utterances() -> None:
    assert list(utterances(np.zeros(16000, np.float32), 20.0)) == []


WORDS = (Word(" good", 0.5, 0.75, 1.0), Word(" day", 0.8, 1.1, 0.5), Word(" sir", 3661.5, 3662.0, 0.0))
RESULT = RecognitionResult(3700.0, WORDS, "english")


def test_segments_end_at_pauses_and_length_limit() -> None:
    assert [len(part) for part in transcripts.segments(WORDS)] == [2, 1]
    steady = [Word("la", i / 2, i / 2 + 0.4, 1.0) for i in range(80)]
    parts = transcripts.segments(steady)
    assert [word for part in parts for word in part] == steady
    assert all(part[-1].end - part[0].start <= transcripts.LONGEST_S for part in parts)
    assert len(parts) == 3


def test_verbose_json_has_requested_segments_and_words() -> None:
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


def test_verbose_json_omits_unrequested_parts() -> None:
    assert "words" not in transcripts.verbose(RESULT, (), "transcribe")
    assert "segments" not in transcripts.verbose(RESULT, ("word",), "transcribe")


def test_subtitles_in_srt_and_vtt() -> None:
    assert transcripts.srt(RESULT) == (
        "1\n00:00:00,500 --> 00:00:01,100\ngood day\n\n2\n01:01:01,500 --> 01:01:02,000\nsir\n"
    )
    assert transcripts.vtt(RESULT) == (
        "WEBVTT\n\n00:00:00.500 --> 00:00:01.100\ngood day\n\n01:01:01.500 --> 01:01:02.000\nsir\n"
    )
    assert transcripts.vtt(RecognitionResult(1.0, ())) == "WEBVTT\n"


def test_word_with_apostrophe_is_one_word() -> None:
    assert text_analysis.words("They've gone, don’t wait") == ["they've", "gone", "don’t", "wait"]


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("where is the station and when does the last train leave", "English"),
        ("안녕하세요 만나서 반갑습니다", "Korean"),
        ("駅はどこですか", "Japanese"),
        ("车站在哪里", "Chinese"),
        ("где находится вокзал", "Russian"),
        ("ja haluaisin kaksi lippua huomisaamun junaan kiitos", "Unknown"),
    ],
)
def test_language_is_detected_from_script_and_function_words(text: str, language: str) -> None:
    assert text_analysis.language(text) == language


def test_language_hints_take_precedence() -> None:
    assert (
        text_analysis.language("hello", ["ko", "english", "pt-BR", "en", "tlh"]) == "Korean, English, Portuguese, Tlh"
    )
