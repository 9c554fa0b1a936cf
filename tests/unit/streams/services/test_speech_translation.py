"""Translation of a recording into English by the speech engine."""

from __future__ import annotations

import io
import wave
from pathlib import Path

import pytest

from streams.audio.decode import open_file
from streams.clients.transcriptions import SpeechTranslationClient
from streams.services import speech_translation
from streams.services.service import RunSummary
from streams.services.speech_translation import SpeechTranslationService
from tests.audio import RATE, encoded, noise
from tests.unit.streams.clients.http_engine import Asked, HttpEngine, reply
from tests.unit.streams.jobs.runs import AUDIO_MS, Run
from topics.errors import ServiceFault
from topics.jobs import payloads
from topics.jobs.payloads import Segment, Transcript, Translated

SEGMENTS = (Segment(500, 1500, "Bonjour."), Segment(2000, 3900, "Au revoir."), Segment(4000, 9000, "Bien."))
FRENCH = Transcript(SEGMENTS, ("french",))


def seconds(asked: Asked) -> float:
    with wave.open(io.BytesIO(asked.fields["file"][0])) as file:
        return float(file.getnframes() / file.getframerate())


def perform(run: Run, engine: HttpEngine | None, piece_s: float = 4.0) -> RunSummary:
    def make() -> SpeechTranslationService:
        client = None if engine is None else SpeechTranslationClient(engine.address(model="whisper"))
        return SpeechTranslationService(client, open_file, piece_s, "EARSHOT_TRANSLATION_URL is not set")

    found: RunSummary = (engine or HttpEngine()).serve(make, lambda service: service.perform(run))
    return found


@pytest.fixture
def audio(tmp_path: Path) -> Path:
    path = tmp_path / "a.wav"
    path.write_bytes(encoded(noise(9 * RATE)))
    return path


def told(run: Run) -> list[Translated]:
    return [payloads.translated(data) for data in run.emitted]


def test_every_turn_is_heard_again_and_long_ones_in_parts(audio: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speech_translation, "PORTION_TURNS", 2)
    run = Run(audio).heard(Transcript(SEGMENTS[:2]), Transcript(SEGMENTS[2:], ("french",)))
    engine = HttpEngine(lambda asked: reply({"text": f" {seconds(asked):.1f}"}))
    assert perform(run, engine) == RunSummary("whisper", AUDIO_MS)
    assert told(run) == [Translated("en", ("1.4", "2.3")), Translated("en", ("2.6 2.6",))]
    assert run.done == pytest.approx([2 / 3, 1.0])
    for asked in engine.asked:
        assert asked.path == "/v1/audio/translations"
        assert asked.fields["likely_language"] == [b"fr"]
        assert asked.fields["model"] == [b"whisper"]
    assert len({asked.headers["idempotency-key"] for asked in engine.asked}) == 4
    assert list(audio.parent.iterdir()) == [audio]


@pytest.mark.parametrize(("lang", "heard"), [("en", ("french",)), ("multi", ("english",)), ("multi", ("en",))])
def test_what_is_english_is_not_heard_again(lang: str, heard: tuple[str, ...]) -> None:
    run, engine = Run(speech_lang=lang).heard(Transcript(SEGMENTS, heard)), HttpEngine()
    assert perform(run, engine) == RunSummary("whisper", AUDIO_MS)
    assert told(run) == [Translated("en", ("Bonjour.", "Au revoir.", "Bien."))]
    assert engine.asked == []


def test_nothing_said_is_no_call() -> None:
    run, engine = Run().heard(Transcript(())), HttpEngine()
    assert perform(run, engine) == RunSummary("whisper", 0)
    assert told(run) == [Translated("en", ())]


def test_several_languages_are_found_turn_by_turn(audio: Path) -> None:
    run, engine = Run(audio).heard(Transcript(SEGMENTS[:1], ("french", "english"))), HttpEngine(reply({"text": "Hi."}))
    perform(run, engine)
    assert "likely_language" not in engine.asked[0].fields


@pytest.mark.parametrize("language", ["ko", "xx"])
def test_another_language_names_the_setting_that_is_missing(language: str) -> None:
    run = Run(translation_target_lang=language).heard(FRENCH)
    message = f"translation into {language} needs an engine: EARSHOT_TRANSLATION_URL is not set"
    with pytest.raises(ServiceFault, match=message):
        perform(run, HttpEngine())


def test_without_a_speech_engine_of_ours_so_does_english() -> None:
    with pytest.raises(ServiceFault, match="translation into en needs an engine: EARSHOT_TRANSLATION_URL"):
        perform(Run().heard(FRENCH), None)


def test_there_is_nothing_to_translate_of_speech_that_failed() -> None:
    with pytest.raises(ServiceFault, match="speech_analysis failed"):
        perform(Run(), HttpEngine())


def test_an_engine_that_fails_is_named(audio: Path) -> None:
    with pytest.raises(ServiceFault, match="Translation API error: 503"):
        perform(Run(audio).heard(FRENCH), HttpEngine(reply({}, 503)))
    assert list(audio.parent.iterdir()) == [audio]
