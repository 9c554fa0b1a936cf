"""The protocol of a process that recognises speech: one JSON request a line, one JSON answer a line."""

import os
import signal
import sys
from typing import BinaryIO, Final, Literal

import msgspec

from infra.engines.speech.transcripts import RecognitionResult
from topics.errors import AudioError, EngineError

Task = Literal["transcribe", "translate"]


class RecognitionRequest(msgspec.Struct, frozen=True):
    """A recording to transcribe or translate."""

    #: Returned with the answer.
    number: int
    #: A file; "" cancels the request with this number.
    path: str
    #: A code of `topics.languages`; None to detect it.
    language: str | None = None
    #: The language of the recording; for a short piece it overrides the detected language.
    likely: str | None = None
    #: `translate` means into English.
    task: Task = "transcribe"
    #: Names and terms that may occur.
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
    """An answer with the number of its request."""

    number: int
    answer: Answer


#: Errors of a recogniser and of decoding a recording.
FAILURES: Final = (AudioError, EngineError, ImportError, OSError, RuntimeError)
request_decoder: Final = msgspec.json.Decoder(RecognitionRequest)


def failure(error: Exception) -> DecodingFailure | EngineFailure:
    message = str(error) or type(error).__name__
    return DecodingFailure(message) if isinstance(error, AudioError) else EngineFailure(message)


class Pipe:
    """Standard input and output of a worker."""

    def __init__(self) -> None:
        """Take over standard input and output.

        Ctrl-C is ignored, because the parent ends this process; prints of libraries go to standard error.
        """
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.requests: BinaryIO = sys.stdin.buffer
        self._answers = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)

    def answer(self, number: int, answer: Answer) -> None:
        self._answers.write(msgspec.json.encode(NumberedAnswer(number, answer)) + b"\n")
        self._answers.flush()
