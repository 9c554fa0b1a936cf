"""A process that recognises speech: it reads the path of a recording a line, and writes a line of JSON for each."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import msgspec

from infra.engines.transcripts import RecognitionResult
from topics.errors import AudioError, EngineError


class DecodingFailure(msgspec.Struct, frozen=True, tag="decoding-failure"):
    """The recording cannot be decoded; the message says why."""

    message: str


class EngineFailure(msgspec.Struct, frozen=True, tag="engine-failure"):
    """The recogniser cannot be loaded or failed; the message says why."""

    message: str


Answer = RecognitionResult | DecodingFailure | EngineFailure


def main() -> None:
    """Answer until the input ends; when the parent has died, exit before the next utterance."""
    # The parent ends this process, not Ctrl-C; what a library prints must not mix with answers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    parent = os.getppid()

    def proceed() -> None:
        if os.getppid() != parent:
            os._exit(0)

    recogniser = None
    for line in sys.stdin.buffer:
        try:
            if recogniser is None:
                from infra.engines.sphinx import Recogniser

                recogniser = Recogniser()
            answer: Answer = recogniser.transcribe(Path(os.fsdecode(line.rstrip(b"\n"))), proceed)
        except AudioError as error:
            answer = DecodingFailure(str(error))
        except (EngineError, ImportError, OSError, RuntimeError) as error:
            answer = EngineFailure(str(error) or type(error).__name__)
        answers.write(msgspec.json.encode(answer) + b"\n")
        answers.flush()


if __name__ == "__main__":
    main()
