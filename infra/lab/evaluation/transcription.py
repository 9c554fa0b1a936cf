"""Evaluates speech models: word errors, and invented text.

Recordings are cut as in jobs: at pauses by voice activity, with a maximum piece length. Rates are jiwer's:
substitutions, deletions and insertions over the words of the reference, all readings together.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import jiwer
import msgspec
import numpy as np

from infra.engines.speech.utterances import UTTERANCE_S, Piece, PieceText, utterances
from infra.engines.speech.whisper import Whisper
from infra.lab.evaluation import recordings
from infra.lab.evaluation.recordings import Recording
from infra.lab.evaluation.report import EvaluationReport
from infra.models import speech_manifest
from streams.audio.resample import resample
from streams.models.protocol import Floats
from streams.voice.speech_segments import RATE
from topics.errors import AudioError

#: Another length into which a reader's speech is cut, in seconds, besides the longest.
SHORTER_S: Final = 15
#: Levels of the white noise, dB below the speech.
NOISES_DB: Final = (10, 0)
BATCH: Final = 4
THREADS: Final = 2


class Reading(msgspec.Struct, frozen=True):
    """A reading by one person, and its words."""

    reader: str
    text: str
    #: float32[n] at 16 kHz.
    samples: Floats


def readings(folder: Path) -> Iterator[Reading]:
    """Yield the rows of the table `readings.csv` in `folder`.

    Raises:
        AudioError: A recording does not decode.
        BadRequest: There is no such table, or it lacks a column.
    """
    for row in recordings.read_rows(folder / "readings.csv", ("file", "reader", "text")):
        yield Reading(row["reader"], row["text"], load(folder / row["file"]))


def load(path: Path) -> Floats:
    """Return a recording as float32[n] at 16 kHz.

    Raises:
        AudioError: It cannot be read or does not decode.
    """
    try:
        pcm = recordings.read_audio(path)
    except AudioError as error:
        raise AudioError(f"{path}: {error}") from error
    return resample(pcm.samples, pcm.rate, RATE)


def evaluate_speech_model(directory: Path, data: Path) -> EvaluationReport:
    """Measure a speech model on the readings and the clips without speech of a data directory.

    Raises:
        AudioError: A recording does not decode.
        BadRequest: The recordings are missing.
        EngineError: The model cannot be loaded, or failed.
    """
    manifest = speech_manifest.read(directory)
    model = Whisper(directory, manifest, THREADS)
    read = list(readings(data / "readings"))
    figures = word_errors(model, read)
    clips = [_samples(one) for one in recordings.sound_clips(data)]
    figures["invented"] = sum(bool(_text(transcribe(model, samples))) for samples in clips) / len(clips)
    figures = {name: round(value, 4) for name, value in figures.items()}
    return EvaluationReport(manifest.model_id, figures)


def word_errors(model: Whisper, read: list[Reading]) -> dict[str, float]:
    """Return word error rates by noise and by length."""

    def rate(material: Iterable[Reading], longest_s: float = UTTERANCE_S) -> float:
        return word_error_rate(
            lambda samples: _text(transcribe(model, samples, longest_s)), ((one.samples, one.text) for one in material)
        )

    noise = np.random.default_rng(0)
    joined = list(_joined(read))
    figures = {"wer_long": rate(joined), f"wer_long_{SHORTER_S}s": rate(joined, SHORTER_S), "wer": rate(read)}
    for below_db in NOISES_DB:
        figures[f"wer_{below_db}db"] = rate(
            Reading(one.reader, one.text, noisy(one.samples, below_db, noise)) for one in read
        )
    return figures


def transcribe(model: Whisper, samples: Floats, longest_s: float = UTTERANCE_S) -> list[PieceText]:
    """Transcribe float32[n] at 16 kHz in pieces of at most `longest_s`.

    Raises:
        EngineError: The model failed.
    """
    pieces = [Piece(one, one.cut(samples)) for one in utterances(samples, longest_s)]
    batches = (pieces[first : first + BATCH] for first in range(0, len(pieces), BATCH))
    return [text for batch in batches for text in model.read(batch)]


def noisy(samples: Floats, below_db: float, generator: np.random.Generator) -> Floats:
    """Add white noise, `below_db` below the mean level, to float32[n]."""
    level = np.sqrt(np.mean(np.square(samples, dtype=np.float64)) / 10 ** (below_db / 10))
    return samples + generator.normal(0.0, level, len(samples)).astype(np.float32)


def word_error_rate(transcribe: Callable[[Floats], str], material: Iterable[tuple[Floats, str]]) -> float:
    """Return the word error rate, 0 or more, over (recording, reference), ignoring case and punctuation.

    Raises:
        ValueError: The references have no words.
    """
    references, hypotheses = [], []
    for recording, reference in material:
        references.append(_plain(reference))
        hypotheses.append(_plain(transcribe(recording)))
    if not any(references):
        raise ValueError("a word error rate needs references with words")
    return float(jiwer.wer(references, hypotheses))


def _joined(read: Iterable[Reading]) -> Iterator[Reading]:
    """Yield one reading per reader, all of theirs joined."""
    for reader, same in itertools.groupby(sorted(read, key=lambda one: one.reader), lambda one: one.reader):
        parts = list(same)
        text = " ".join(part.text for part in parts)
        yield Reading(reader, text, np.concatenate([part.samples for part in parts]))


def _samples(recording: Recording) -> Floats:
    pcm = recording.decode()
    return resample(pcm.samples, pcm.rate, RATE)


def _text(texts: Iterable[PieceText]) -> str:
    return "".join(word.text for text in texts for word in text.words).strip()


def _plain(text: str) -> str:
    return " ".join(re.findall(r"[\w']+", text.lower()))
