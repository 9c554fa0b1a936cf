"""Words of readings, counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from infra.engines.transcripts import Word
from infra.engines.whisper_piece import Piece, PieceText
from infra.lab.evaluation import transcription
from infra.lab.evaluation.transcription import Reading, noisy, readings, word_errors
from infra.models import speech_manifest, whisper_files
from tests.recordings import TWO_READERS
from topics.errors import AudioError, BadRequest


class Parrot:
    """Says one word for each piece that it hears."""

    manifest = speech_manifest.read(whisper_files.find("whisper-base")[0])

    def __init__(self) -> None:
        self.lengths: list[float] = []

    def read(self, pieces: list[Piece]) -> list[PieceText]:
        self.lengths += [len(piece.samples) / 16000 for piece in pieces]
        return [PieceText("en", (Word(" word", 0.0, 1.0, 1.0),)) for _ in pieces]


def test_readings_are_read_with_their_texts(tmp_path: Path) -> None:
    (tmp_path / "readings.csv").write_text("file,reader,text\na.wav,1,one two\nb.wav,1,three\n")
    for name in ("a.wav", "b.wav"):
        soundfile.write(tmp_path / name, np.zeros(800), 8000)
    read = list(readings(tmp_path))
    assert [(one.reader, one.text, len(one.samples)) for one in read] == [("1", "one two", 1600), ("1", "three", 1600)]
    (tmp_path / "b.wav").unlink()
    with pytest.raises(AudioError, match=r"b\.wav"):
        list(readings(tmp_path))
    with pytest.raises(BadRequest, match=r"readings\.csv"):
        list(readings(tmp_path / "elsewhere"))


def test_errors_are_counted_alone_joined_in_pieces_and_in_noise() -> None:
    parrot = Parrot()
    samples = [transcription.load(path)[: 8 * 16000] for path in TWO_READERS]
    figures = word_errors(parrot, [Reading("a", "word other", one) for one in samples])  # type: ignore[arg-type]
    assert set(figures) == {
        *("wer", "wer_10db", "wer_0db", "wer_long", "wer_long_5s", "wer_long_15s", "speech_processor_ratio")
    }
    # A word for each of two readings, of four words; joined they are one piece.
    assert (figures["wer"], figures["wer_long"]) == (0.5, 0.75)
    assert figures["wer_long_5s"] != figures["wer_long"]
    assert max(parrot.lengths) < 28.5


def test_noise_is_as_loud_as_it_is_said_to_be() -> None:
    tone = np.sin(np.arange(16000) / 10).astype(np.float32)
    noise = noisy(tone, 10, np.random.default_rng(0)) - tone
    assert 10 * np.log10(np.mean(tone**2) / np.mean(noise**2)) == pytest.approx(10, abs=0.1)
