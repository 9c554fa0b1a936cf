"""Speech recognition with pocketsphinx and the small English model in its wheel: a demonstration.

It stands in where Whisper cannot be loaded. On ordinary readings its word error rate is 57.5 %; on other audio most
words are wrong.
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
from infra.engines.utterances import utterances
from streams.voice.speech_segments import RATE

if TYPE_CHECKING:
    from streams.models.protocol import Floats

#: The longest utterance: the decoder searches an utterance as a whole, and takes longer for a longer one.
UTTERANCE_S: Final = 20.0
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
        for utterance in utterances(samples, UTTERANCE_S):
            proceed()
            words.extend(self.words(utterance.cut(samples), utterance.start_s))
        return RecognitionResult(len(samples) / RATE, tuple(words), "english")

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
                text = f" {segment.word.partition('(')[0]}"
                yield Word(text, round(first, 2), round(min(last, end), 2), round(sure, 4))
