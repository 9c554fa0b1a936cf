"""Captions and insights: natural English that reports exactly what was heard."""

import csv
import json
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import infra.models
from infra.engines.text.phrases import PLACES, table
from infra.engines.text.scene import SceneRequest, TagEvent, TranscriptTurn, build_scene
from infra.engines.text.sentences import caption, insights
from tests.unit.infra.engines.scenes import Stretch, Turn, heard

MODELS = Path(infra.models.__file__).parent


def test_table_has_every_tag_of_bundled_models() -> None:
    with (MODELS / "yamnet" / "tags.csv").open(encoding="utf-8") as file:
        tags = {row["tag"] for row in csv.DictReader(file)}
    tags |= {tag["name"] for tag in json.loads((MODELS / "sed_mini" / "manifest.json").read_bytes())["tags"]}
    assert tags - table().keys() == set()


def test_table_is_consistent() -> None:
    for known in table().values():
        assert known.place in PLACES
        assert set(known.general) <= table().keys() - {known.tag}
        assert known.clause
        assert known.noun


RAIN = ("Rain", 0.0, 10.0, 0.95)
BARKS = (("Dog_bark", 1.0, 3.0, 0.9), ("Dog_bark", 4.0, 9.0, 0.8))
TALK = ("A", 2.0, 6.0, "look at that dog it keeps barking at the rain")

CAPTIONS: list[tuple[float, tuple[Stretch, ...], tuple[Turn, ...], str]] = [
    (5, (), (), "No known sound is heard in 5 s of audio."),
    (10, (RAIN,), (), "Rain falls throughout."),
    (2, (("Sneeze", 0, 2, 0.9),), (), "Somebody sneezes."),
    (
        10,
        (*BARKS, RAIN),
        (("A", 2.0, 6.5, "look"),),
        "A dog barks more than once over steady rain while somebody speaks.",
    ),
    (
        10,
        (*BARKS, RAIN),
        (TALK,),
        "A dog barks more than once over steady rain, and somebody speaks between 2 s and 6 s.",
    ),
    (10, (RAIN, ("Wind_noise", 0, 10, 0.9)), (), "Rain falls and the wind blows throughout."),
    (10, (RAIN, ("Wind_noise", 0, 10, 0.89)), (), "Rain falls and something like wind is heard throughout."),
    (10, (("Rain", 0, 4, 0.9), ("Rain", 6, 10, 0.9)), (), "Rain falls on and off."),
    (10, (("Speech", 0, 10, 0.9),), (), "Somebody speaks throughout."),
    (
        60,
        (("Cough", 4, 6, 0.9),),
        (("A", 40, 50, "hm"),),
        "Somebody coughs around 5 s, and somebody speaks between 40 s and 50 s.",
    ),
    (
        300,
        (("Glass_break", 200, 202, 0.9), ("Siren", 50, 70, 0.91), ("Car_horn", 100, 102, 0.7), ("Car", 0, 300, 0.9)),
        (),
        "A siren wails between 50 s and 1 min 10 s, then something like a car horn is heard around 1 min 41 s, and"
        " then glass breaks around 3 min 21 s over road traffic.",
    ),
    (
        60,
        (("Cough", 4, 6, 0.9), ("Cough", 57, 59, 0.9)),
        (("A", 30, 40, "hm"),),
        "Somebody coughs more than once, and somebody speaks between 30 s and 40 s.",
    ),
    # A siren goes on when the bell rings, so the bell is not after it.
    (
        60,
        (("Siren", 10, 40, 0.9), ("Cough", 12, 14, 0.9), ("Bell", 20, 22, 0.9)),
        (),
        "A siren wails between 10 s and 40 s, somebody coughs around 13 s and a bell rings around 21 s.",
    ),
    (2, (("Glass_harp", 0, 2, 0.9),), (), "Glass harp is heard."),
]


@pytest.mark.parametrize(("duration", "events", "turns", "expected"), CAPTIONS)
def test_caption_describes_scene(
    duration: float, events: tuple[Stretch, ...], turns: tuple[Turn, ...], expected: str
) -> None:
    assert caption(heard(duration, *events, turns=turns)) == expected


def test_insights_of_full_scene() -> None:
    found = insights(heard(10, *BARKS, RAIN, turns=(TALK,)))
    assert found.contains_speech
    assert found.primary_sound_environment == "Outdoors, in wind or rain: mostly rain, with speech"
    told = insights(heard(10, *BARKS)).primary_sound_environment
    assert told == "A place with animals: a barking dog", "it barks for 5 s of 10 at most"
    assert found.situation_summary == (
        "This recording of 10 s has steady rain in the background. A dog barks more than once. "
        "Somebody speaks between 2 s and 6 s."
    )
    assert found.notable_events == ("Dog_bark",)
    assert found.detected_language == "English"
    assert found.speech_content_summary == (
        "One speaker says ten words, among them “look”, “dog” and “keeps”. "
        "It reads: “look at that dog it keeps barking at the rain”"
    )
    assert found.keywords == ("look", "dog", "keeps", "barking", "rain")


def test_insights_without_transcript_omit_words() -> None:
    found = insights(heard(10, ("Speech", 0, 10, 0.9)))
    assert found.contains_speech
    assert (found.detected_language, found.speech_content_summary, found.keywords) == (None, None, None)
    assert found.situation_summary.endswith("Somebody speaks throughout, but no words could be made out.")
    assert found.notable_events == ("Speech",)


def test_summary_omits_words_if_speech_was_not_analysed() -> None:
    found = insights(heard(10, ("Speech", 0, 10, 0.9), unavailable=("speech_analysis",)))
    assert found.situation_summary.endswith("Somebody speaks throughout.")


def test_texts_omit_sounds_if_not_analysed() -> None:
    scene = heard(10, unavailable=("sound_event_detection",))
    assert caption(scene) == "No words are heard in 10 s of audio."
    found = insights(scene)
    assert found.situation_summary == "This recording is 10 s long."
    assert found.primary_sound_environment == "Unclear: sounds were not analysed"
    spoken = insights(heard(10, turns=(TALK,), unavailable=("sound_event_detection",)))
    assert spoken.situation_summary == "This recording is 10 s long. Somebody speaks between 2 s and 6 s."


def test_pauses_within_an_event_are_not_the_sound() -> None:
    """In a long timeline, short pauses are left out."""
    hour, talk = (("Rain", 0.0, 3600.0, 0.95, 60),), (("A", 1000.0, 1100.0, "well"),)
    assert caption(heard(3600, *hour, turns=talk)) == (
        "Rain falls, and somebody speaks between 16 min 40 s and 18 min 20 s."
    )
    assert insights(heard(3600, *hour)).primary_sound_environment == "Outdoors, in wind or rain: rain"


def test_danger_needs_more_than_an_uncertain_window() -> None:
    def place(*events: Stretch) -> str:
        return insights(heard(3600, *events)).primary_sound_environment

    shots = [("Gunshot", float(at), at + 2.0, 0.97) for at in range(0, 3600, 50)]
    assert place(*shots) == "A place where there may be danger: gunfire"
    assert place(shots[0]) == "A place that its sounds do not tell: gunfire"
    assert place(("Gunshot", 8, 11, 0.6)) == "A place that its sounds do not tell: something like gunfire"
    assert (
        place(("Siren", 8, 11, 0.6), ("Train", 20, 22, 0.6))
        == "Perhaps near a railway: something like the noise of a train"
    )


def test_truncated_transcript_gives_lower_bounds() -> None:
    turns = (TranscriptTurn("well yes", 0, 2, "A"), TranscriptTurn("no", 9, 10, "B"))
    cut = build_scene(SceneRequest("caption", 10, (), turns, transcript_cut=True))
    assert caption(cut) == "At least two people talk."
    told = insights(cut).speech_content_summary
    assert told is not None
    assert told.startswith("At least two speakers say more than three words")
    alone = insights(build_scene(SceneRequest("caption", 10, (), turns[:1], transcript_cut=True)))
    assert str(alone.speech_content_summary).startswith("At least one speaker says more than two words")


events = st.builds(
    TagEvent,
    st.sampled_from([*table(), "Some_new_tag", "Female_speech", "", "_"]),
    st.floats(0, 100),
    st.floats(0, 100),
    st.floats(0, 1),
)
lines = st.builds(
    TranscriptTurn, st.text(max_size=30), st.floats(0, 100), st.floats(0, 100), st.sampled_from(["A", "B", None])
)


@example(10.0, [], [TranscriptTurn("the", 0.0, 1.0, "A")])
@settings(max_examples=25, deadline=None)
@given(st.floats(0, 1e6), st.lists(events, max_size=12), st.lists(lines, max_size=4))
def test_any_input_gives_well_formed_sentences(
    duration: float, found: list[TagEvent], turns: list[TranscriptTurn]
) -> None:
    made = build_scene(SceneRequest("caption", duration, tuple(found), tuple(turns)))
    text = caption(made)
    assert text.endswith(".")
    assert text[0] == text[0].upper()
    assert "  " not in text
    assert " ." not in text
    told = insights(made)
    assert told.contains_speech or not any(line.text.strip() for line in turns)
    assert set(told.notable_events) <= {event.tag for event in found}
