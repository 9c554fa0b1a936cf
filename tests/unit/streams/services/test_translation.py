"""Translation of a transcript."""

from __future__ import annotations

from typing import Any

import pytest

from streams.clients.translations import MAX_CHARACTERS, TranslationClient
from streams.services import translation
from streams.services.service import RunSummary
from streams.services.translation import TranslationService
from tests.unit.streams.clients.http_engine import Asked, HttpEngine, reply
from tests.unit.streams.jobs.runs import AUDIO_MS, Run
from topics.errors import ServiceFault
from topics.jobs import payloads
from topics.jobs.payloads import Segment, Transcript, Translated

TRANSCRIPT = (Transcript((Segment(0, 1000, "Hello."), Segment(2000, 3000, "Bye."))), Transcript(()))


def loud(asked: Asked) -> bytes:
    """A language of capitals."""
    return reply({"translatedText": [text.upper() for text in asked.json["q"]], "detectedLanguage": []})


def perform(run: Run, engine: HttpEngine, **address: Any) -> RunSummary:
    found: RunSummary = engine.serve(
        lambda: TranslationService(TranslationClient(engine.address(**address))), lambda service: service.perform(run)
    )
    return found


def test_all_turns_are_translated_in_one_call() -> None:
    engine, run = HttpEngine(loud), Run(translation_target_lang="ko").heard(*TRANSCRIPT)
    assert perform(run, engine, key="secret") == RunSummary("default", AUDIO_MS)
    assert [payloads.translated(data) for data in run.emitted] == [Translated("ko", ("HELLO.", "BYE."))]
    (asked,) = engine.asked
    assert (asked.path, asked.headers["idempotency-key"]) == ("/translate", "the-run-0")
    assert asked.json == {
        "q": ["Hello.", "Bye."],
        "source": "auto",
        "target": "ko",
        "format": "text",
        "api_key": "secret",
    }


def test_an_answer_that_no_record_could_hold_is_refused() -> None:
    run = Run().heard(*TRANSCRIPT)
    engine = HttpEngine(reply({"translatedText": ["a" * MAX_CHARACTERS, "b"]}))
    with pytest.raises(ServiceFault, match="no usable answer: it is too long"):
        perform(run, engine)
    assert run.emitted == []


def test_a_language_that_is_known_is_named() -> None:
    engine = HttpEngine(loud)
    perform(Run(speech_lang="de").heard(*TRANSCRIPT), engine)
    assert engine.asked[0].json["source"] == "de"
    assert "api_key" not in engine.asked[0].json


def test_a_long_transcript_takes_several_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translation, "BATCH_CHARACTERS", 10)
    texts = ["12345", "12345", "1", "12345678901234", "12"]
    engine, run = HttpEngine(loud), Run().heard(Transcript(tuple(Segment(0, 1, text) for text in texts)))
    perform(run, engine)
    assert [asked.json["q"] for asked in engine.asked] == [texts[:2], texts[2:3], texts[3:4], texts[4:]]
    assert [asked.headers["idempotency-key"][-1] for asked in engine.asked] == ["0", "1", "2", "3"]
    assert [text for data in run.emitted for text in payloads.translated(data).texts] == texts
    assert run.done == pytest.approx([0.4, 0.6, 0.8, 1.0])


def test_nothing_said_is_no_call() -> None:
    engine, run = HttpEngine(), Run().heard(Transcript(()))
    assert perform(run, engine) == RunSummary("default", 0)
    assert [payloads.translated(data) for data in run.emitted] == [Translated("en", ())]


def test_there_is_nothing_to_translate_of_speech_that_failed() -> None:
    with pytest.raises(ServiceFault, match="speech_analysis failed"):
        perform(Run(), HttpEngine())


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (reply({"error": "no"}, 400), "Translation API error: 400"),
        (reply({"translatedText": ["one"]}), "gave no usable answer: 1 translations of 2 texts"),
        (reply({"translatedText": "one"}), "gave no usable answer: Expected `array`, got `str`"),
        (reply({"translatedText": ["one", None]}), "gave no usable answer: Expected `str`, got `null`"),
        (reply({"error": "no"}), "gave no usable answer: Object missing required field `translatedText`"),
        (None, "the translation engine did not answer within 0.05 s"),
    ],
)
def test_a_wrong_answer_is_the_error(answer: bytes | None, fault: str) -> None:
    run = Run().heard(*TRANSCRIPT)
    with pytest.raises(ServiceFault) as raised:
        perform(run, HttpEngine(answer), timeout_s=0.05 if answer is None else 5.0)
    assert fault in str(raised.value)
    assert run.emitted == []
