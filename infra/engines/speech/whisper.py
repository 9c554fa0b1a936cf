"""Speech recognition with Whisper, by CTranslate2.

Model: https://github.com/openai/whisper (MIT; paper https://arxiv.org/abs/2212.04356). Runtime:
https://github.com/OpenNMT/CTranslate2 (MIT), which releases the interpreter's lock. The front end (`log_mel`) and the
tokens (`whisper_tokens`) are ours.

Pieces are padded to the 30 s that the model was trained on; on shorter input it gets words wrong. The model invents
text for noise and music. Such text is dropped by voice activity, by the model's own certainty, and by its compression
ratio, because repetitions compress well.
"""

import math
import zlib
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate, groupby, pairwise
from pathlib import Path
from typing import Any, Final

import ctranslate2
import msgspec
import numpy as np

from infra.engines.speech.transcripts import Word
from infra.engines.speech.utterances import Piece, PieceText, Utterance
from infra.engines.speech.whisper_tokens import Tokens
from infra.models import whisper_files
from infra.models.speech_manifest import SpeechManifest
from streams.audio.logmel import mel_matrix
from streams.models import runtime
from streams.models.manifest import LogMel
from streams.models.protocol import Floats
from streams.voice.speech_segments import RATE, SpeechSegment
from topics.errors import EngineError

#: Samples of the model's input, between two frames, and of a frame.
PIECE: Final = 30 * RATE
HOP: Final = 160
WINDOW: Final = 400
#: Frames of alignments a second.
STEPS_PER_S: Final = 50
BEAM: Final = 5
#: Longest answer in tokens: a base plus a rate for each second, up to the model's limit.
FIRST_TOKENS: Final = 8
TOKENS_PER_S: Final = 12
MAX_TOKENS: Final = 448
#: Text is dropped if the mean log probability of its tokens is below the first, if its compression ratio exceeds the
#: second, or if the model's probability of no speech exceeds the third. The figures are OpenAI's; their transcribe.py
#: drops text that fails both the first and the third.
LEAST_LOG_PROBABILITY: Final = -1.0
MOST_COMPRESSION: Final = 2.4
MOST_NO_SPEECH: Final = 0.6
#: The third limit for speech shorter than `SHORT_S`. Readings as loud as the noise around them reach at most 0.18,
#: readings far from a microphone 0.25; text invented for animals, coughs and engines, which is short, is mostly above.
SHORT_S: Final = 5.0
MOST_NO_SPEECH_SHORT: Final = 0.3
#: A piece counts as in another language than its recording if it is at least this long and the model this sure.
OWN_LANGUAGE_S: Final = 5.0
OWN_LANGUAGE: Final = 0.9
#: If no language is this probable, assume the language of two thirds of the training data.
LEAST_LANGUAGE: Final = 0.5
COMMON_LANGUAGE: Final = "en"


class Answer(msgspec.Struct, frozen=True):
    """The model's answer to a piece."""

    tokens: list[int]
    #: Mean log probability of the tokens.
    log_probability: float
    #: Probability that nobody speaks.
    no_speech: float

    def credible(self, text: str, speech: Sequence[SpeechSegment]) -> bool:
        """Return True if the tokens' text was probably heard in this speech, not invented."""
        raw = text.encode()
        short = sum(part.end_s - part.start_s for part in speech) < SHORT_S
        return (
            self.log_probability >= LEAST_LOG_PROBABILITY
            and self.no_speech <= (MOST_NO_SPEECH_SHORT if short else MOST_NO_SPEECH)
            and len(raw) <= MOST_COMPRESSION * len(zlib.compress(raw))
        )


class Whisper:
    """A loaded model; as many callers at a time as it has threads."""

    def __init__(self, directory: Path, manifest: SpeechManifest, threads: int) -> None:
        """Load the model in `directory`, whose files must match the manifest.

        Each caller gets one thread: two take as long for a piece, because decoding waits for both at each token, and
        use a third more processor time.

        Raises:
            EngineError: a file is missing or differs, or the model cannot be loaded.
        """
        self.manifest = manifest
        whisper_files.check(directory, manifest)
        try:
            self.tokens = Tokens.read(directory / "vocabulary.txt")
            self._model: Any = ctranslate2.models.Whisper(
                str(directory), compute_type="int8", inter_threads=threads, intra_threads=1
            )
        except (OSError, RuntimeError, ValueError) as error:
            raise EngineError(f"{directory}: {runtime.first_line(error)}") from error

    def find_language(self, samples: Floats) -> str:
        """Return the language code of float32[n] at 16 kHz; the model uses 30 s of it."""
        if not self.manifest.multilingual:
            return "en"
        return known_language(*self._languages(self._encode([samples]))[0])

    def read(self, pieces: Sequence[Piece]) -> list[PieceText]:
        """Return the words of pieces, decoded side by side.

        Raises:
            EngineError: the model failed.
        """
        try:
            return self._read(pieces)
        except RuntimeError as error:
            raise EngineError(f"{self.manifest.model_id}: {runtime.first_line(error)}") from error

    def _read(self, pieces: Sequence[Piece]) -> list[PieceText]:
        encoded = self._encode([piece.samples for piece in pieces])
        languages = self._choose_languages(pieces, encoded)
        texts: list[PieceText] = []
        spoken: dict[str | None, list[tuple[int, list[int]]]] = {}
        for number, answer in enumerate(self._generate(pieces, languages, encoded)):
            utterance, text = pieces[number].utterance, self.tokens.decode(answer.tokens)
            words: tuple[Word, ...] = ()
            if text.strip() and answer.credible(text, utterance.speech):
                if pieces[number].task == "translate":
                    # Translated words come in another order than spoken ones, so they have no times of their own.
                    words = (
                        Word(text, utterance.start_s, utterance.end_s, round(math.exp(answer.log_probability), 4)),
                    )
                else:
                    spoken.setdefault(languages[number], []).append((number, answer.tokens))
            texts.append(PieceText(languages[number] or "en", words))
        for language, same in spoken.items():
            for number, words in self._align(same, language, pieces, encoded):
                texts[number] = msgspec.structs.replace(texts[number], words=words)
        return texts

    def _generate(self, pieces: Sequence[Piece], languages: Sequence[str | None], encoded: Any) -> list[Answer]:
        answers: dict[int, Answer] = {}

        def length(number: int) -> int:
            return len(pieces[number].hints)

        # All prompts of a batch must have the same length.
        for _, same in groupby(sorted(range(len(pieces)), key=length), length):
            numbers = list(same)
            prompts = [[*pieces[n].hints, *self.tokens.start(languages[n], pieces[n].task)] for n in numbers]
            longest_s = max(len(pieces[n].samples) for n in numbers) / RATE
            results = self._model.generate(
                _part(encoded, numbers),
                prompts,
                beam_size=BEAM,
                max_length=min(MAX_TOKENS, len(prompts[0]) + FIRST_TOKENS + round(TOKENS_PER_S * longest_s)),
                return_scores=True,
                return_no_speech_prob=True,
            )
            for number, result in zip(numbers, results, strict=True):
                tokens = result.sequences_ids[0]
                # The score is a mean over the tokens that leaves out the end token.
                log_probability = result.scores[0] * len(tokens) / (len(tokens) + 1)
                words = [token for token in tokens if token < self.tokens.end]
                answers[number] = Answer(words, log_probability, result.no_speech_prob)
        return [answers[number] for number in range(len(pieces))]

    def _align(
        self, spoken: Sequence[tuple[int, list[int]]], language: str | None, pieces: Sequence[Piece], encoded: Any
    ) -> Iterator[tuple[int, tuple[Word, ...]]]:
        """Yield the words, with times, of pieces of one language, given by number and tokens."""
        numbers = [number for number, _ in spoken]
        alignments = self._model.align(
            _part(encoded, numbers),
            self.tokens.start(language, "transcribe")[:-1],
            [tokens for _, tokens in spoken],
            [min(PIECE, len(pieces[number].samples)) // HOP for number in numbers],
        )
        for (number, tokens), alignment in zip(spoken, alignments, strict=True):
            yield number, tuple(self._words(tokens, language, alignment, pieces[number].utterance))

    def _words(
        self, tokens: Sequence[int], language: str | None, alignment: Any, utterance: Utterance
    ) -> Iterator[Word]:
        words = list(self.tokens.words(tokens, language))
        path = np.array(alignment.alignments or [(0, 0)])
        # The first step of the path at each token; the end comes after the last one.
        steps = path[np.flatnonzero(np.diff(path[:, 0], prepend=-1)), 1]
        ends = accumulate((count for _, count in words), initial=0)
        for (text, _), (first, last) in zip(words, pairwise(ends), strict=True):
            start_s, end_s = (float(steps[min(at, len(steps) - 1)]) / STEPS_PER_S for at in (first, last))
            start_s, end_s = into_speech(utterance.start_s + start_s, utterance.start_s + end_s, utterance.speech)
            probability = float(np.mean(alignment.text_token_probs[first:last]))
            if text.strip():
                yield Word(text, round(start_s, 2), round(end_s, 2), round(probability, 4))

    def _choose_languages(self, pieces: Sequence[Piece], encoded: Any) -> list[str | None]:
        if not self.manifest.multilingual:
            return [None] * len(pieces)
        if all(piece.language for piece in pieces):
            return [piece.language for piece in pieces]
        return [
            piece.language or choose_language(piece, *found)
            for piece, found in zip(pieces, self._languages(encoded), strict=True)
        ]

    def _languages(self, encoded: Any) -> list[tuple[str, float]]:
        return [(found[0][0].strip("<|>"), found[0][1]) for found in self._model.detect_language(encoded)]

    def _encode(self, samples: Sequence[Floats]) -> Any:
        # One by one: a batch takes as long, and several times the memory.
        bands = self.manifest.input.bands
        frames = (ctranslate2.StorageView.from_array(log_mel(piece, bands)[np.newaxis]) for piece in samples)
        encoded = [self._model.encode(one, to_cpu=True) for one in frames]
        if len(encoded) == 1:
            return encoded[0]
        return ctranslate2.StorageView.from_array(np.concatenate([np.array(one) for one in encoded]))


def into_speech(start_s: float, end_s: float, speech: Sequence[SpeechSegment]) -> tuple[float, float]:
    """Return a word's times inside the speech that it overlaps most or is nearest to.

    Alignment gives the pause after a word to the word itself.
    """
    segment = max(speech, key=lambda part: min(part.end_s, end_s) - max(part.start_s, start_s))
    start_s = min(max(start_s, segment.start_s), segment.end_s)
    return start_s, max(start_s, min(end_s, segment.end_s))


def log_mel(samples: Floats, bands: int) -> Floats:
    """Return the front end of at most 30 s of float32[n] at 16 kHz in -1..1, as float32[bands, 3000].

    This is `log_mel_spectrogram` of https://github.com/openai/whisper/blob/main/whisper/audio.py. Frames after the end
    are silence and are not computed.
    """
    samples = samples[:PIECE]
    padded = np.concatenate((samples[1 : WINDOW // 2 + 1][::-1], samples, np.zeros(WINDOW, np.float32)))
    count = min(PIECE // HOP, len(samples) // HOP + 2)
    windows = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[: count * HOP : HOP]
    taper = np.hanning(WINDOW + 1)[:-1].astype(np.float32)
    spectrum = np.fft.rfft(windows * taper)
    power = (spectrum.real**2 + spectrum.imag**2).astype(np.float32)
    logs = np.full((bands, PIECE // HOP), -10.0, np.float32)
    logs[:, : len(power)] = np.log10(np.maximum(mel_filters(bands) @ power.T, 1e-10))
    frames: Floats = (np.maximum(logs, logs.max() - 8.0) + 4.0) / 4.0
    return frames


@cache
def mel_filters(bands: int) -> Floats:
    """Return float32[bands, 201], like librosa's `filters.mel`."""
    front = LogMel(
        RATE, 1, bands, WINDOW, HOP, WINDOW, 0.0, RATE / 2, 1.0, mel_scale="slaney", mel_slopes="hertz", mel_norm="area"
    )
    return mel_matrix(front).astype(np.float32)


def choose_language(piece: Piece, found: str, probability: float) -> str:
    """Return the language of a piece in which the model detected `found`."""
    sure = probability >= OWN_LANGUAGE and len(piece.samples) >= OWN_LANGUAGE_S * RATE
    return found if sure else piece.likely or known_language(found, probability)


def known_language(found: str, probability: float) -> str:
    """Return the detected language if it is at least as probable as all others together, else `COMMON_LANGUAGE`."""
    return found if probability >= LEAST_LANGUAGE else COMMON_LANGUAGE


def _part(encoded: Any, numbers: Sequence[int]) -> Any:
    """Return the rows with these numbers from an encoder's output."""
    if list(numbers) == list(range(encoded.shape[0])):
        return encoded
    return ctranslate2.StorageView.from_array(np.ascontiguousarray(np.array(encoded)[list(numbers)]))
