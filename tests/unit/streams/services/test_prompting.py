"""Insights and captions: the engine's input, and acceptable answers."""

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pytest

from streams.clients.chat import ChatClient
from streams.services.descriptions import CAPTION, INSIGHTS
from streams.services.prompting import PROMPT_CHARACTERS, ChatService, ChatTask
from streams.services.service import RunSummary
from streams.services.timeline import (
    HALF_CHARACTERS,
    MAX_EVENTS,
    EventCollector,
    TranscriptCollector,
)
from tests.unit.streams.clients.http_engine import Asked, HttpEngine, reply
from tests.unit.streams.jobs.runs import AUDIO_MS, MODEL, Run
from topics.errors import ServiceFault
from topics.jobs.payloads import Caption, Insights, Segment, Sounds, Transcript
from topics.scores import probability, threshold

TAGS = ("Dog_bark", "Rain")
#: Longer than any recording here.
LONG_MS = 10**7
ANSWER = {
    "contains_speech": True,
    "primary_sound_environment": "a garden",
    "situation_summary": "A dog barks.",
    "notable_events": ["Dog_bark"],
    "detected_language": "English",
    "speech_content_summary": "Somebody greets a dog.",
    "keywords": ["dog"],
}
TURN = Segment(1500, 2500, "Hello, dog.", 0, "Anna", 0.7)


def tags(model: str) -> Sequence[str]:
    assert model == MODEL
    return TAGS


def sounds(*windows: tuple[int, int], first: int = 0) -> Sounds:
    """Return windows with scores above the threshold, one per tag; negative ones are not reported."""
    return Sounds(first, MODEL, len(TAGS), bytes(threshold(0) + score for window in windows for score in window))


def told(content: object, **more: Any) -> bytes:
    text = content if isinstance(content, str) else json.dumps(content)
    return reply({"choices": [{"message": {"role": "assistant", "content": text}, **more}], "model": "writer-1"})


def answers(*given: bytes) -> Callable[[Asked], bytes]:
    left = iter(given)
    return lambda asked: next(left)


def perform(task: ChatTask, run: Run, engine: HttpEngine, **address: Any) -> RunSummary:
    found: RunSummary = engine.serve(
        lambda: ChatService(task, ChatClient(engine.address(**address)), tags), lambda service: service.perform(run)
    )
    return found


def both(**options: Any) -> Run:
    return Run(**options).heard(Transcript((TURN,), ("english",))).sounded(sounds((5, -1), (20, -1), (-1, -1)))


def test_engine_receives_sounds_and_speech() -> None:
    engine, run = HttpEngine(told(ANSWER)), both(audio_insights_prompt="Mind the dog.")
    assert perform(INSIGHTS, run, engine, model="writer") == RunSummary("writer", AUDIO_MS)
    assert [msgspec.msgpack.decode(data, type=Insights) for data in run.emitted] == [msgspec.convert(ANSWER, Insights)]
    (asked,) = engine.asked
    assert asked.headers["idempotency-key"] == "the-run-0"
    request = asked.json
    assert (request["model"], request["temperature"]) == ("writer", 0)
    form = request["response_format"]
    schema = form["json_schema"].pop("schema")
    assert form == {"type": "json_schema", "json_schema": {"name": "audio_insights", "strict": True}}
    assert set(schema["required"]) == set(schema["properties"]) == set(Insights.__struct_fields__)
    assert schema["additionalProperties"] is False
    system, user = request["messages"]
    assert (system["role"], user["role"]) == ("system", "user")
    assert "Mind the dog." not in system["content"], "it is the operator's"
    assert json.loads(user["content"]) == {
        "task": "audio_insights",
        "duration_seconds": 4.25,
        "events": [{"tag": "Dog_bark", "start": 0.0, "end": 3.0, "peak": probability(threshold(0) + 20), "windows": 2}],
        "transcript": [{"start": 1.5, "end": 2.5, "speaker": "Anna", "text": "Hello, dog."}],
        "languages": ["english"],
        "transcript_cut": False,
        "unavailable": [],
        "client_asks": "Mind the dog.",
    }


def test_long_client_prompt_is_truncated_with_warning() -> None:
    engine, run = HttpEngine(told(ANSWER)), both(audio_insights_prompt="x" * (PROMPT_CHARACTERS + 1))
    summary = perform(INSIGHTS, run, engine)
    assert json.loads(engine.asked[0].json["messages"][1]["content"])["client_asks"] == "x" * PROMPT_CHARACTERS
    assert summary.warnings == ("audio_insights: written with the first 2000 characters of audio_insights_prompt",)


def test_caption_is_one_line() -> None:
    engine, run = HttpEngine(told({"caption": " A dog\nbarks. "})), both(audio_insights_prompt="Mind the dog.")
    assert perform(CAPTION, run, engine) == RunSummary("writer-1", AUDIO_MS)
    assert [msgspec.msgpack.decode(data, type=Caption) for data in run.emitted] == [Caption("A dog barks.")]
    request = engine.asked[0].json
    assert request["response_format"]["json_schema"]["name"] == "caption"
    assert "model" not in request
    assert "Mind the dog" not in request["messages"][0]["content"], "it is for the insights"


def test_long_model_name_is_truncated() -> None:
    answer = reply({"choices": [{"message": {"content": json.dumps({"caption": "A dog."})}}], "model": "m" * 10**6})
    assert perform(CAPTION, both(), HttpEngine(answer)).model == "m" * 128


def test_transcript_implies_speech_despite_engine_answer() -> None:
    run = Run().heard(Transcript((TURN,))).sounded(sounds((5, -1)))
    perform(INSIGHTS, run, HttpEngine(told({**ANSWER, "contains_speech": False})))
    insights = msgspec.msgpack.decode(run.emitted[0], type=Insights)
    assert insights is not None
    assert insights.contains_speech


@pytest.mark.parametrize("speech", [True, False])
def test_speech_fields_are_null_without_transcript(speech: bool) -> None:
    run = Run().heard(Transcript(())).sounded(sounds((5, -1)))
    perform(INSIGHTS, run, HttpEngine(told({**ANSWER, "contains_speech": speech, "keywords": None})))
    silent = dict.fromkeys(("detected_language", "speech_content_summary", "keywords"))
    expected = msgspec.convert({**ANSWER, **silent, "contains_speech": speech}, Insights)
    assert msgspec.msgpack.decode(run.emitted[0], type=Insights) == expected


@pytest.mark.parametrize("fence", ["```json\n%s\n```", "```\n%s```\n", " %s "])
def test_code_fence_around_answer_is_stripped(fence: str) -> None:
    run = both()
    perform(CAPTION, run, HttpEngine(told(fence % '{"caption": "A `dog` barks."}')))
    assert msgspec.msgpack.decode(run.emitted[0], type=Caption) == Caption("A `dog` barks.")


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        ("A dog barks.", "JSON is malformed"),
        ({**ANSWER, "situation_summary": 5}, "Expected `str`, got `int` - at `$.situation_summary`"),
        ({**ANSWER, "situation_summary": ""}, "at `$.situation_summary`"),
        ({**ANSWER, "notable_events": ["x"] * 101}, "at `$.notable_events`"),
        ({**ANSWER, "keywords": None}, "keywords are null"),
        ("[" * 10_000, "Expected `object`, got `array`"),
    ],
)
def test_unusable_answer_is_retried_once(wrong: object, fault: str) -> None:
    """The engine gets the reason; a second such answer is an error."""
    engine, run = HttpEngine(answers(told(wrong), told(ANSWER))), both()
    perform(INSIGHTS, run, engine)
    assert len(run.emitted) == 1
    assert [asked.headers["idempotency-key"] for asked in engine.asked] == ["the-run-0", "the-run-1"]
    first, second = (asked.json["messages"] for asked in engine.asked)
    assert fault in second[0]["content"]
    assert fault not in first[0]["content"]
    assert first[1] == second[1]

    engine, run = HttpEngine(told(wrong)), both()
    with pytest.raises(ServiceFault, match="the caption engine gave no usable answer: ") as raised:
        perform(INSIGHTS, run, engine)
    assert fault in str(raised.value)
    assert (len(engine.asked), run.emitted) == (2, [])


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (reply({}, 301), "Caption API error: 301"),
        (reply({}), "the caption engine gave no usable answer: Object missing required field `choices`"),
        (reply({"choices": []}), "the caption engine gave no usable answer: it holds no text"),
        (reply({"choices": [{"message": {"content": None}}]}), "it holds no text"),
        (told("{", finish_reason="length"), "its text was cut at the engine's own limit"),
    ],
)
def test_protocol_error_is_not_retried(answer: bytes, fault: str) -> None:
    engine = HttpEngine(answer)
    with pytest.raises(ServiceFault) as raised:
        perform(CAPTION, both(), engine)
    assert str(raised.value).endswith(fault)
    assert len(engine.asked) == 1


def test_one_failed_service_is_a_warning() -> None:
    engine, run = HttpEngine(told(ANSWER)), Run().sounded(sounds((5, -1)))
    assert perform(INSIGHTS, run, engine).warnings == ("audio_insights: written without speech_analysis, which failed",)
    assert json.loads(engine.asked[0].json["messages"][1]["content"])["unavailable"] == ["speech_analysis"]
    run = Run().heard(Transcript((TURN,)))
    done = perform(CAPTION, run, HttpEngine(told({"caption": "Anna greets a dog."})))
    assert done == RunSummary("writer-1", AUDIO_MS, ("caption: written without sound_event_detection, which failed",))


def test_two_failed_services_are_an_error() -> None:
    engine = HttpEngine()
    with pytest.raises(ServiceFault, match="sound_event_detection and speech_analysis failed"):
        perform(CAPTION, Run(), engine)
    assert engine.asked == []


# --- the engine's input ---------------------------------------------------------------------------------------------


def test_events_equal_naive_merge_of_windows() -> None:
    generator = np.random.default_rng(3)
    heard = generator.random((60, 2)) < 0.3
    expected = []
    for tag in range(2):
        spans: list[list[int]] = []
        for window in np.flatnonzero(heard[:, tag]).tolist():
            if spans and window <= spans[-1][1]:
                spans[-1][1] = window + 2
            else:
                spans.append([window, window + 2])
        expected += [(TAGS[tag], start, end) for start, end in spans]
    events = EventCollector(tags, LONG_MS)
    for first in range(0, 60, 7):
        part = [(int(dog) - 1, int(rain) - 1) for dog, rain in heard[first : first + 7]]
        events.add(sounds(*part, first=first))
    assert sorted((e.tag, e.start, e.end) for e in events.finish()) == sorted(expected)


def test_too_many_events_are_merged_over_shortest_pauses() -> None:
    """Rare short sounds stay, and so do the long pauses."""
    events, first = EventCollector(tags, LONG_MS), 0
    for number in range(5 * MAX_EVENTS):
        rare = number in (3, 4 * MAX_EVENTS)
        events.add(sounds((9 if number == 7 else 1, 2 if rare else -1), first=first))
        first += 200 if number == 2 * MAX_EVENTS else 5
    found = events.finish()
    assert len(found) == MAX_EVENTS
    assert found == sorted(found, key=lambda event: event.start)
    rain = [(event.start, event.end) for event in found if event.tag == "Rain"]
    assert rain == [(15.0, 17.0), (4 * 5.0 * MAX_EVENTS + 195, 4 * 5.0 * MAX_EVENTS + 197)]
    barks = [event for event in found if event.tag == "Dog_bark"]
    assert (barks[0].start, barks[-1].end) == (0.0, first - 5 + 2)
    assert max(event.peak for event in barks) == probability(threshold(0) + 9)
    assert sum(event.windows for event in barks) == 5 * MAX_EVENTS
    assert (2 * 5.0 * MAX_EVENTS + 2, 2 * 5.0 * MAX_EVENTS + 200) in [
        (one.end, other.start) for one, other in pairwise(barks)
    ]


def test_long_transcript_keeps_its_beginning_and_end() -> None:
    lines = TranscriptCollector()
    for number in range(1000):
        text = f"{number:03} " * 20
        lines.add(Transcript((Segment(number * 1000, number * 1000 + 500, text, 0, "A"),), ("en",)))
    found = lines.finish()
    assert lines.cut
    assert (found[0].start, found[-1].end) == (0.0, 999.5)
    assert found == sorted(found, key=lambda line: line.start)
    assert 0.9 * HALF_CHARACTERS < len(msgspec.json.encode(found)) < 3 * HALF_CHARACTERS
    assert lines.languages == ("en",)


def test_long_turn_is_cut_in_the_middle() -> None:
    lines = TranscriptCollector()
    lines.add(Transcript((Segment(0, 1000, "a" * 50_000 + "b" * 50_000, 0, "A"),)))
    first, last = lines.finish()
    assert lines.cut
    assert set(first.text) == {"a"}
    assert set(last.text) == {"b"}
    assert len(first.text) == len(last.text) == HALF_CHARACTERS - 40
