"""The process that recognises speech: a line with the path of a recording in, a line of JSON out."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import msgspec

from infra.engines.transcripts import Heard
from topics.errors import AudioError, EngineError


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The recording cannot be decoded, for the reason that it gives."""

    message: str


class Broken(msgspec.Struct, frozen=True, tag="broken"):
    """There is no decoder, for the reason that it gives."""

    message: str


Answer = Heard | Refused | Broken


def main() -> None:
    """Answer until the input ends; a parent that died ends it before the next utterance."""
    # Whoever started us ends us; and what a library prints must not mix with answers.
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
            answer: Answer = recogniser.hear(Path(os.fsdecode(line.rstrip(b"\n"))), proceed)
        except AudioError as error:
            answer = Refused(str(error))
        except (EngineError, ImportError, OSError, RuntimeError) as error:
            answer = Broken(str(error) or type(error).__name__)
        answers.write(msgspec.json.encode(answer) + b"\n")
        answers.flush()


if __name__ == "__main__":
    main()
