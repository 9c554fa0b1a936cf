"""Captions of a job: text, times, and the two formats."""

import re
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from app.jobs.cues import LINE, LINES, LONGEST_MS, SOUND_RULES, ended_sounds, sound_cues, speech_cues
from app.windows import WindowRenderer
from earshot_client import SoundClass, Window
from infra.cli.summary import runs
from streams.services.timeline import EventCollector
from tests.unit.app.conftest import House
from tests.unit.app.double import MODEL, STRONG, TAGS, WEAK
from tests.unit.app.jobs.conftest import BOTH, SOUND, TURNS, sounds, transcript
from topics.captions import Cue, subrip, webvtt
from topics.jobs import payloads
from topics.jobs.options import Service
from topics.jobs.payloads import Segment, Sounds
from topics.keys import new_id
from topics.scores import threshold
from topics.sessions.sounds import Heard, SoundTracker


def heard(*windows: str, turns: tuple[Segment, ...] = ()) -> list[tuple[int, int, tuple[str, ...]]]:
    """Return the cues of windows, each given by its tags, strongest first."""
    tracker, events = SoundTracker(SOUND_RULES), list[Heard]()
    for number, window in enumerate(windows):
        events += ended_sounds(tracker, number, [(tag, -place) for place, tag in enumerate(window.split())])
    events += tracker.finish()
    return [(cue.start_ms, cue.end_ms, cue.lines) for cue in sound_cues(events, turns)]


def test_captions_contain_speech_and_sounds(house: House, http: TestClient) -> None:
    job = house.jobs.create(BOTH)
    house.jobs.perform(job, Service.SOUND, sounds("Dog_bark", "", "Dog_bark Siren"), sounds("", "Speech", first=3))
    house.jobs.perform(job, Service.SPEECH, transcript(TURNS[0]), transcript(TURNS[1]))
    vtt = http.get(f"/api/v1/jobs/{job}/captions.vtt", headers={"X-Api-Key": ""})
    assert (vtt.status_code, vtt.headers["content-type"]) == (200, "text/vtt")
    assert vtt.text == (
        "WEBVTT\n\n"
        "00:00:00.000 --> 00:00:04.000\n[Dog bark]\n\n"
        "00:00:02.000 --> 00:00:04.000\n[Siren]\n\n"
        "00:00:04.600 --> 00:00:08.910\n<v Anna Kim>Good morning.\n\n"
        "00:00:09.000 --> 00:00:11.500\n<v Unknown 0>Guten Tag.\n\n"
    )
    srt = http.get(f"/api/v1/jobs/{job}/captions.srt", headers={"X-Api-Key": ""})
    assert (srt.status_code, srt.headers["content-type"]) == (200, "application/x-subrip")
    assert srt.text == (
        "1\n00:00:00,000 --> 00:00:04,000\n[Dog bark]\n\n"
        "2\n00:00:02,000 --> 00:00:04,000\n[Siren]\n\n"
        "3\n00:00:04,600 --> 00:00:08,910\nAnna Kim: Good morning.\n\n"
        "4\n00:00:09,000 --> 00:00:11,500\nUnknown 0: Guten Tag.\n\n"
    )


def test_equal_scores_have_one_order_everywhere(house: House, http: TestClient) -> None:
    """That of the model's tags, which is not that of their names or ends."""
    scores = bytes([0, STRONG, 0, STRONG, WEAK] + [0, STRONG, 0, 0, 0] * 2)
    job = house.jobs.create(SOUND)
    house.jobs.perform(job, Service.SOUND, payloads.encode(Sounds(0, MODEL, len(TAGS), scores)))
    (window, *_) = http.get(f"/api/v1/jobs/{job}").json()["result"]["sound_event_detection"]["results"]
    assert [one["class"] for one in window["classes"]] == ["Siren", "Baby_cry", "Knock"]
    renderer = WindowRenderer(TAGS)
    (tags, *_) = renderer.reported_tags(scores)
    assert [one.name for one in renderer.named(tags)] == ["Siren", "Baby_cry", "Knock"]
    assert "[Siren] [Baby cry] [Knock]" in http.get(f"/api/v1/jobs/{job}/captions.vtt").text


def test_cues_do_not_exceed_audio_length(house: House, http: TestClient) -> None:
    job = house.jobs.create(SOUND)
    house.jobs.perform(job, Service.SOUND, sounds("", "", "", "Siren"), audio_ms=4322)
    assert "00:00:03.000 --> 00:00:04.322\n[Siren]" in http.get(f"/api/v1/jobs/{job}/captions.vtt").text
    (*_, last) = http.get(f"/api/v1/jobs/{job}").json()["result"]["sound_event_detection"]["results"]
    assert (last["end_time"], last["end_time_sec"]) == ("00:04.32", 4.322)


def test_control_characters_are_removed_from_captions() -> None:
    cue = Cue(0, 1000, "", ("a\x1b[2J\r\nb\x9bc\x00", "d"))
    assert b"".join(webvtt([cue])) == b"WEBVTT\n\n00:00:00.000 --> 00:00:01.000\na [2J  b c \nd\n\n"
    assert b"".join(subrip([cue])) == b"1\n00:00:00,000 --> 00:00:01,000\na [2J  b c \nd\n\n"


@pytest.mark.parametrize("kind", ["vtt", "srt"])
def test_captions_require_ended_job(house: House, http: TestClient, kind: str) -> None:
    job = house.jobs.create(BOTH)
    path = f"/api/v1/jobs/{job}/captions.{kind}"
    house.jobs.perform(job, Service.SOUND, sounds("Siren"), error="broken in the middle")
    early = http.get(path)
    assert (early.status_code, early.json()) == (409, {"error": "the job has not ended yet"})
    house.jobs.perform(job, Service.SPEECH, error="no engine")
    assert "[Siren]" in http.get(path).text
    unknown = http.get(f"/api/v1/jobs/{new_id()}/captions.{kind}")
    assert (unknown.status_code, unknown.json()) == (404, {"error": "Not Found"})


def test_job_without_findings_has_empty_captions(house: House, http: TestClient) -> None:
    job = house.jobs.create(SOUND)
    house.jobs.perform(job, Service.SOUND, sounds("", ""))
    assert http.get(f"/api/v1/jobs/{job}/captions.vtt").text == "WEBVTT\n\n"
    assert http.get(f"/api/v1/jobs/{job}/captions.srt").text == ""


def test_events_bridge_gap_of_one_window() -> None:
    assert heard("Siren", "", "Siren", "", "", "Siren") == [(0, 4000, ("[Siren]",)), (5000, 7000, ("[Siren]",))]


@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_captions_timeline_and_client_agree_on_sounds(reported: list[bool]) -> None:
    audio_ms = 1000 * len(reported) + 300
    tracker, timeline = SoundTracker(SOUND_RULES), EventCollector(lambda _: ("Siren",), audio_ms)
    timeline.add(Sounds(0, "", 1, bytes(threshold(0) - 1 + one for one in reported)))
    windows, events = [], list[Heard]()
    for number, one in enumerate(reported):
        events += ended_sounds(tracker, number, [("Siren", 0)] * one)
        classes = (SoundClass("Siren", 0.5),) * one
        windows.append(Window(number, min(number + 2, audio_ms / 1000), classes))
    events += tracker.finish()
    told = [(event.start_ms / 1000, min(event.end_ms, audio_ms) / 1000) for event in events]
    assert [(event.start, event.end) for event in timeline.finish()] == told
    assert [(run.start, run.end) for run in runs(windows)] == told


def test_long_event_is_captioned_only_at_start() -> None:
    assert heard(*["Music"] * 60) == [(0, LONGEST_MS, ("[Music]",))]


def test_simultaneous_events_share_cue_by_probability() -> None:
    assert heard("Siren Dog_bark", "Siren") == [(0, 3000, ("[Siren] [Dog bark]",))]
    ((_, _, lines),) = heard(" ".join(f"A_rather_long_name_{number}" for number in range(9)))
    assert len(lines) == LINES
    assert lines[0].startswith("[A rather long name 0]")


def test_speech_sounds_are_omitted_during_transcript() -> None:
    turn = Segment(1900, 2500, "Hello.")
    talk = "Speech Male_speech Child_speech Whisper Siren"
    assert heard(talk, turns=(turn,)) == [(0, 2000, ("[Siren]",))]
    far = Segment(2000, 2500, "Hello.")
    ((_, _, lines),) = heard(talk, turns=(far,))
    assert lines[0].startswith("[Speech] [Male speech]")
    inside = (Segment(0, 9000, "a"), Segment(1000, 2000, "b"))
    assert heard("", "", "", "", "", "", "Speech", turns=inside) == []


def test_long_turn_is_split_proportionally() -> None:
    text = " ".join(["word"] * 80)
    cues = speech_cues(Segment(10_000, 30_000, text, 0), with_names=False)
    assert " ".join(line for cue in cues for line in cue.lines) == text
    assert len(cues) > 1
    assert (cues[0].start_ms, cues[-1].end_ms) == (10_000, 30_000)
    assert all(before.end_ms == after.start_ms for before, after in pairwise(cues))
    lengths = [(cue.end_ms - cue.start_ms) / sum(map(len, cue.lines)) for cue in cues]
    assert max(lengths) / min(lengths) < 1.05


@settings(max_examples=60, deadline=None)
@example(text="a --->", start=0, lasts=0, with_names=False)
@given(
    text=st.text(st.sampled_from("ab,é語 \n<&>-"), max_size=400),
    start=st.integers(0, 100_000),
    lasts=st.integers(0, 60_000),
    with_names=st.booleans(),
)
def test_cues_stay_within_limits(text: str, start: int, lasts: int, with_names: bool) -> None:
    cues = speech_cues(Segment(start, start + lasts, text, 3, "Ed <b>"), with_names)
    said = "".join(line for cue in cues for line in cue.lines)
    expected = f"Ed <b>: {text}" if with_names and text.split() else text
    assert "".join(said.split()) == "".join(expected.split())
    for cue in cues:
        assert 1 <= len(cue.lines) <= LINES
        assert all(len(line) <= LINE for line in cue.lines)
        assert 0 < cue.end_ms - cue.start_ms <= LONGEST_MS
        assert start <= cue.start_ms <= start + lasts
    assert cues == sorted(cues, key=lambda cue: cue.start_ms)
    written = b"".join(webvtt(cues)).decode()
    blocks = written.split("\n\n")
    assert (blocks[0], blocks[-1], len(blocks)) == ("WEBVTT", "", len(cues) + 2)
    assert written.count("-->") == len(cues)
    assert all(re.match(r"[0-9:.]+ --> [0-9:.]+\n<v Ed &lt;b&gt;>[^<>]+\Z", block) for block in blocks[1:-1])
    assert b"".join(subrip(cues)).count(b"-->") == len(cues)


def test_hours_may_exceed_99() -> None:
    cue = Cue(360_000_001, 360_000_002, "", ("[Siren]",))
    assert b"".join(subrip([cue])) == b"1\n100:00:00,001 --> 100:00:00,002\n[Siren]\n\n"


PROSE = """
And so my fellow Americans, ask not what your country can do for you, ask what you can do for your country. You don't
mean that you thought me so silly, when the train came in at four and nobody of us was there to meet her.
"""


@pytest.mark.parametrize("spoken_ms", [6_000, 15_000, 40_000])
def test_no_words_stand_alone_at_the_end_of_a_turn(spoken_ms: int) -> None:
    """However long a turn is, its lines are about equally long; greedy lines leave one or two words every few turns."""
    words = PROSE.split()
    for count in range(10, len(words)):
        cues = speech_cues(Segment(0, spoken_ms * count // 20, " ".join(words[:count])), with_names=False)
        lines = [len(line) for cue in cues for line in cue.lines]
        assert min(lines) >= max(lines) / 2, cues
