"""Translation: of a transcript by its engine, and of a recording into English by the speech engine."""

import io
import threading
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from streams.audio.decode import AudioFile, OpenFile, open_file
from streams.clients.transcriptions import SpeechTranslationClient
from streams.clients.translations import MAX_CHARACTERS, TranslationClient
from streams.services import speech_translation, translation
from streams.services.service import RunSummary
from streams.services.speech_translation import SpeechTranslationService
from streams.services.translation import TranslationService
from tests.audio import RATE, encoded, noise
from tests.unit.streams.clients.http_engine import Asked, HttpEngine, reply
from tests.unit.streams.jobs.runs import AUDIO_MS, Run
from topics.errors import ServiceFault
from topics.jobs import payloads
from topics.jobs.payloads import Segment, Transcript, Translated
from topics.media import Media

TRANSCRIPT = (Transcript((Segment(0, 1000, "Hello."), Segment(2000, 3000, "Bye."))), Transcript(()))


def loud(asked: Asked) -> bytes:
    return reply({"translatedText": [text.upper() for text in asked.json["q"]], "detectedLanguage": []})


def perform(run: Run, engine: HttpEngine, **address: Any) -> RunSummary:
    found: RunSummary = engine.serve(
        lambda: TranslationService(TranslationClient(engine.address(**address))), lambda service: service.perform(run)
    )
    return found


def told(run: Run) -> list[Translated]:
    return [payloads.translated(data) for data in run.emitted]


@pytest.mark.parametrize(
    ("options", "key", "sent"),
    [
        ({"translation_target_lang": "ko"}, {"key": "secret"}, {"source": "auto", "target": "ko", "api_key": "secret"}),
        ({"speech_lang": "de"}, {}, {"source": "de", "target": "en"}),
    ],
)
def test_all_turns_are_translated_in_one_call(options: Any, key: dict[str, str], sent: dict[str, str]) -> None:
    engine, run = HttpEngine(loud), Run(**options).heard(*TRANSCRIPT)
    assert perform(run, engine, **key) == RunSummary("default", AUDIO_MS)
    assert told(run) == [Translated(sent["target"], ("HELLO.", "BYE."))]
    (asked,) = engine.asked
    assert (asked.path, asked.headers["idempotency-key"]) == ("/translate", "the-run-0")
    assert asked.json == {"q": ["Hello.", "Bye."], "format": "text", **sent}


def test_long_transcript_takes_several_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translation, "BATCH_CHARACTERS", 10)
    texts = ["12345", "12345", "1", "12345678901234", "12"]
    engine, run = HttpEngine(loud), Run().heard(Transcript(tuple(Segment(0, 1, text) for text in texts)))
    perform(run, engine)
    assert [asked.json["q"] for asked in engine.asked] == [texts[:2], texts[2:3], texts[3:4], texts[4:]]
    assert [asked.headers["idempotency-key"][-1] for asked in engine.asked] == ["0", "1", "2", "3"]
    assert [text for one in told(run) for text in one.texts] == texts
    assert run.done == pytest.approx([0.4, 0.6, 0.8, 1.0])


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (reply({"error": "no"}, 400), "Translation API error: 400"),
        (reply({"translatedText": ["one"]}), "gave no usable answer: 1 translations of 2 texts"),
        (reply({"translatedText": "one"}), "gave no usable answer: Expected `array`, got `str`"),
        (reply({"translatedText": ["one", None]}), "gave no usable answer: Expected `str`, got `null`"),
        (reply({"translatedText": ["a" * MAX_CHARACTERS, "b"]}), "gave no usable answer: it is too long"),
        (reply({"error": "no"}), "gave no usable answer: Object missing required field `translatedText`"),
        (None, "the translation engine did not answer within 0.05 s"),
    ],
)
def test_invalid_answer_becomes_error(answer: bytes | None, fault: str) -> None:
    run = Run().heard(*TRANSCRIPT)
    with pytest.raises(ServiceFault) as raised:
        perform(run, HttpEngine(answer), timeout_s=0.05 if answer is None else 5.0)
    assert fault in str(raised.value)
    assert run.emitted == []


# --- by the speech engine -------------------------------------------------------------------------------------------

SEGMENTS = (Segment(500, 1500, "Bonjour."), Segment(2000, 3900, "Au revoir."), Segment(4000, 9000, "Bien."))
FRENCH = Transcript(SEGMENTS, ("french",))


def seconds(asked: Asked) -> float:
    with wave.open(io.BytesIO(asked.fields["file"][0])) as file:
        return float(file.getnframes() / file.getframerate())


def hear_again(
    run: Run, engine: HttpEngine | None, piece_s: float = 4.0, open_file: OpenFile = open_file
) -> RunSummary:
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


def test_turns_are_translated_from_audio_in_bounded_parts(audio: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speech_translation, "PORTION_TURNS", 2)
    run = Run(audio).heard(Transcript(SEGMENTS[:2]), Transcript(SEGMENTS[2:], ("french",)))
    engine = HttpEngine(lambda asked: reply({"text": f" {seconds(asked):.1f}"}))
    assert hear_again(run, engine) == RunSummary("whisper", AUDIO_MS)
    assert told(run) == [Translated("en", ("1.4", "2.3")), Translated("en", ("2.6 2.6",))]
    assert run.done == pytest.approx([2 / 3, 1.0])
    for asked in engine.asked:
        assert asked.path == "/v1/audio/translations"
        assert asked.fields["likely_language"] == [b"fr"]
        assert asked.fields["model"] == [b"whisper"]
    assert len({asked.headers["idempotency-key"] for asked in engine.asked}) == 4
    assert list(audio.parent.iterdir()) == [audio]


def test_audio_is_decoded_in_threads_of_its_own(audio: Path) -> None:
    """A long recording does not keep uploads waiting, which share the loop's threads."""
    names: list[str] = []

    def noted(source: BinaryIO, media: Media, *_: Any, **__: Any) -> AudioFile:
        names.append(threading.current_thread().name)
        return open_file(source, media)

    hear_again(Run(audio).heard(FRENCH), HttpEngine(reply({"text": "Hi."})), open_file=noted)
    assert [name.rpartition("_")[0] for name in names] == ["translation-reading"]


@pytest.mark.parametrize(("lang", "heard"), [("en", ("french",)), ("multi", ("english",)), ("multi", ("en",))])
def test_english_speech_is_not_translated_again(lang: str, heard: tuple[str, ...]) -> None:
    run, engine = Run(speech_lang=lang).heard(Transcript(SEGMENTS, heard)), HttpEngine()
    assert hear_again(run, engine) == RunSummary("whisper", AUDIO_MS)
    assert told(run) == [Translated("en", ("Bonjour.", "Au revoir.", "Bien."))]
    assert engine.asked == []


def test_likely_language_is_not_sent_for_several_languages(audio: Path) -> None:
    run, engine = Run(audio).heard(Transcript(SEGMENTS[:1], ("french", "english"))), HttpEngine(reply({"text": "Hi."}))
    hear_again(run, engine)
    assert "likely_language" not in engine.asked[0].fields


@pytest.mark.parametrize(("language", "engine"), [("ko", HttpEngine()), ("xx", HttpEngine()), ("en", None)])
def test_language_without_engine_names_missing_setting(language: str, engine: HttpEngine | None) -> None:
    run = Run(translation_target_lang=language).heard(FRENCH)
    message = f"translation into {language} needs an engine: EARSHOT_TRANSLATION_URL is not set"
    with pytest.raises(ServiceFault, match=message):
        hear_again(run, engine)


def test_engine_failure_is_named(audio: Path) -> None:
    with pytest.raises(ServiceFault, match="Translation API error: 503"):
        hear_again(Run(audio).heard(FRENCH), HttpEngine(reply({}, 503)))
    assert list(audio.parent.iterdir()) == [audio]


@pytest.mark.parametrize(("perform", "model"), [(perform, "default"), (hear_again, "whisper")])
def test_empty_transcript_makes_no_call_and_missing_one_fails(
    perform: Callable[[Run, HttpEngine], RunSummary], model: str
) -> None:
    run = Run().heard(Transcript(()))
    assert perform(run, HttpEngine()) == RunSummary(model, 0)
    assert told(run) == [Translated("en", ())]
    with pytest.raises(ServiceFault, match="speech_analysis failed"):
        perform(Run(), HttpEngine())
