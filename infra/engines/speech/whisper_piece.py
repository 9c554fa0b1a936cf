"""A piece of a recording for Whisper, and its result."""

from typing import Final

import msgspec

from infra.engines.speech.transcripts import Word
from infra.engines.speech.utterances import Utterance
from infra.engines.speech.worker_protocol import Task
from streams.models.protocol import Floats

#: The longest utterance; with the silence around it, it fits the 30 s of the model.
UTTERANCE_S: Final = 28.0


class Piece(msgspec.Struct, frozen=True):
    """An utterance to transcribe or translate."""

    utterance: Utterance
    #: float32[n] at 16 kHz.
    samples: Floats
    #: A language code of the model; None to detect it.
    language: str | None = None
    #: The language of the recording; for a short piece it overrides the detected language.
    likely: str | None = None
    task: Task = "transcribe"
    #: Tokens from `Tokens.hints`.
    hints: tuple[int, ...] = ()


class PieceText(msgspec.Struct, frozen=True):
    """The words of a piece: none if they would be invented; for a translation one word with all of the text."""

    language: str
    words: tuple[Word, ...] = ()
