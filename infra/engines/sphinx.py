"""Speech recognition with pocketsphinx and the small English model in its wheel: a demonstration.

It lets transcription be tried without a network. On ordinary readings its word error rate is 57.5 %
(`python -m infra.lab.evaluation.transcription`); on other audio most words are wrong.
Decoder: https://github.com/cmusphinx/pocketsphinx (BSD-2-Clause). It keeps the interpreter's lock while it decodes,
and a decoder serves one thread, so it runs in processes of its own (`infra.engines.worker`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from infra.engines import recording
from infra.engines.transcripts import RecognitionResult, Word
from streams.voice import activity
from streams.voice.speech_segments import Hysteresis

if TYPE_CHECKING:
    from streams.models.protocol import Floats

RATE: Final = 16_000
#: The longest utterance: the decoder searches an utterance as a whole, and takes longer for a longer one.
UTTERANCE_S: Final = 20.0
#: Utterances are cut in pauses, and keep this much silence on both sides.
MARGIN_S: Final = 0.15
FRAMES_PER_S: Final = 100
#: Feature means are those of the utterance alone. The search bounds halve the time and changed no word of the clean
#: speech that was tried.
_OPTIONS: Final = {"cmn": "batch", "maxhmmpf": 3000, "maxwpf": 10, "loglevel": "FATAL"}


class Recogniser:
    """A loaded decoder, for one thread."""

    def __init__(self) -> None:
        from pocketsphinx import Decoder

        self._decoder: Any = Decoder(**_OPTIONS)

    def transcribe(self, path: Path, proceed: Callable[[], None] = lambda: None) -> RecognitionResult:
        """Recognise the recording in a file, at most ten minutes long; `proceed` is called before each utterance.

        Raises:
            AudioError: it cannot be decoded, or is longer than ten minutes.
        """
        with path.open("rb") as file:
            samples = recording.load(file, RATE)
        words: list[Word] = []
        for start, end in utterances(samples):
            proceed()
            words.extend(self.words(samples[start:end], start / RATE))
        return RecognitionResult(len(samples) / RATE, tuple(words))

    def words(self, samples: Floats, at: float = 0.0) -> Iterator[Word]:
        """Recognise one utterance, float32[n] at 16 kHz, that begins `at` seconds; yield its words."""
        pcm = (np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes()
        # State that the front end keeps from the last utterance would change this one's words.
        self._decoder.reinit_feat()
        self._decoder.start_utt()
        self._decoder.process_raw(pcm, False, True)
        self._decoder.end_utt()
        end = at + len(samples) / RATE
        for segment in self._decoder.seg() or ():
            # Fillers are in brackets; a number in parentheses after a word says which of its pronunciations it is.
            if segment.word[0] not in "<[+":
                first, last = (at + frame / FRAMES_PER_S for frame in (segment.start_frame, segment.end_frame + 1))
                sure = min(1.0, max(0.0, float(segment.prob)))
                yield Word(segment.word.partition("(")[0], round(first, 2), round(min(last, end), 2), round(sure, 4))


def utterances(samples: Floats) -> Iterator[tuple[int, int]]:
    """Yield utterances as sample ranges [start, end) of float32[n] at 16 kHz, cut in pauses where there are any."""
    settings = Hysteresis(max_speech_s=UTTERANCE_S)
    begun, ended = -1.0, -1.0
    for segment in activity.bundled_detector().segments([samples], settings):
        if begun >= 0 and segment.end_s - begun <= UTTERANCE_S:
            ended = segment.end_s
            continue
        if begun >= 0:
            yield _samples(begun, min(ended + MARGIN_S, max(ended, segment.start_s)), len(samples))
        begun, ended = max(segment.start_s - MARGIN_S, max(ended, 0.0)), segment.end_s
    if begun >= 0:
        yield _samples(begun, ended + MARGIN_S, len(samples))


def _samples(start_s: float, end_s: float, most: int) -> tuple[int, int]:
    return round(start_s * RATE), min(most, round(end_s * RATE))
