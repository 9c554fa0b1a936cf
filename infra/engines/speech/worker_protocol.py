"""What a process that recognises speech reads and writes: a request a line, as JSON, and an answer a line."""

from __future__ import annotations

import os
import signal
import sys
from typing import BinaryIO, Final, Literal

import msgspec

from infra.engines.speech.transcripts import RecognitionResult
from topics.errors import AudioError, EngineError

Task = Literal["transcribe", "translate"]


class RecognitionRequest(msgspec.Struct, frozen=True):
    """A recording to be written down."""

    #: Returned with the answer.
    number: int
    #: A file; "": nobody waits any longer for the request with this number.
    path: str
    #: A code of `topics.languages`, None to find it.
    language: str | None = None
    #: The language of the recording that this is a piece of, which goes before what is found in a short piece.
    likely: str | None = None
    #: `translate`: into English.
    task: Task = "transcribe"
    #: Names and terms that may be said.
    prompt: str = ""


class DecodingFailure(msgspec.Struct, frozen=True, tag="decoding-failure"):
    """The recording cannot be decoded; the message says why."""

    message: str


class LoadFailure(msgspec.Struct, frozen=True, tag="load-failure"):
    """The model cannot be loaded; the message says why."""

    message: str


class EngineFailure(msgspec.Struct, frozen=True, tag="engine-failure"):
    """The recogniser failed; the message says why."""

    message: str


Answer = RecognitionResult | DecodingFailure | EngineFailure | LoadFailure


class NumberedAnswer(msgspec.Struct, frozen=True):
    """An answer, and the number of its request."""

    number: int
    answer: Answer


#: What a recogniser and the decoding of a recording may raise.
FAILURES: Final = (AudioError, EngineError, ImportError, OSError, RuntimeError)
request_decoder: Final = msgspec.json.Decoder(RecognitionRequest)


def failure(error: Exception) -> DecodingFailure | EngineFailure:
    message = str(error) or type(error).__name__
    return DecodingFailure(message) if isinstance(error, AudioError) else EngineFailure(message)


class Pipe:
    """Standard input and output of a worker."""

    def __init__(self) -> None:
        """Take them over: the parent ends this process, not Ctrl-C; what a library prints does not mix with answers."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.requests: BinaryIO = sys.stdin.buffer
        self._answers = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)

    def answer(self, number: int, answer: Answer) -> None:
        self._answers.write(msgspec.json.encode(NumberedAnswer(number, answer)) + b"\n")
        self._answers.flush()
