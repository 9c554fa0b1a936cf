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


RAIN = ("Rain", 0.0, 10.0, 0.7)
BARKS = (("Dog_bark", 3.0, 4.0, 0.9), ("Dog_bark", 4.5, 5.0, 0.8))
TALK = ("A", 2.0, 6.0, "look at that dog it keeps barking at the rain")

CAPTIONS: list[tuple[float, tuple[Stretch, ...], tuple[Turn, ...], str]] = [
    (5, (), (), "No known sound is heard in 5 s of audio."),
    (10, (RAIN,), (), "Rain falls throughout."),
    (2, (("Sneeze", 0, 2, 0.9),), (), "Somebody sneezes."),
    (10, (*BARKS, RAIN), (TALK,), "A dog barks twice between 3 s and 5 s over steady rain while somebody speaks."),
    (10, (RAIN, ("Wind_noise", 0, 10, 0.6)), (), "Rain falls and the wind blows throughout."),
    (10, (("Rain", 0, 4, 0.7), ("Rain", 6, 10, 0.7)), (), "Rain falls on and off throughout."),
    (10, (("Speech", 0, 10, 0.9),), (), "Somebody speaks throughout."),
    (
        60,
        (("Cough", 4, 6, 0.9),),
        (("A", 40, 50, "hm"),),
        "Somebody coughs around 5 s, and somebody speaks from 40 s to 50 s.",
    ),
    (
        300,
        (("Glass_break", 200, 202, 0.9), ("Siren", 50, 70, 0.8), ("Car_horn", 100, 102, 0.7), ("Car", 0, 300, 0.9)),
        (),
        "A siren wails from 50 s to 1 min 10 s, then a car horn sounds around 1 min 41 s, and then glass breaks"
        " around 3 min 21 s over road traffic.",
    ),
    (
        60,
        (("Cough", 4, 6, 0.9), ("Cough", 57, 59, 0.9)),
        (("A", 30, 40, "hm"),),
        "Somebody coughs twice between 4 s and 59 s, and somebody speaks from 30 s to 40 s.",
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
    assert found.situation_summary == (
        "This recording of 10 s has steady rain in the background. A dog barks twice between 3 s and 5 s. "
        "Somebody speaks from 2 s to 6 s."
    )
    assert found.notable_events == ("Dog_bark",)
    assert found.detected_language == "English"
    assert found.speech_content_summary == (
        "One speaker says ten words, mostly about “look”, “dog” and “keeps”. "
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
    assert spoken.situation_summary == "This recording is 10 s long. Somebody speaks from 2 s to 6 s."


def test_truncated_transcript_gives_lower_bounds() -> None:
    turns = (TranscriptTurn("well yes", 0, 2, "A"), TranscriptTurn("no", 9, 10, "B"))
    cut = build_scene(SceneRequest("caption", 10, (), turns, transcript_cut=True))
    assert caption(cut) == "At least two people talk between 0 s and 10 s."
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
