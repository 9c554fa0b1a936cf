"""`python -m infra.engines.speech MODEL THREADS BATCH`: a process that recognises speech with Whisper."""

import os
import sys
from typing import TYPE_CHECKING

from infra.engines.speech.whisper_worker import WhisperWorker
from infra.engines.speech.worker_protocol import Pipe
from infra.models import whisper_files

if TYPE_CHECKING:
    from infra.engines.speech.whisper import Whisper


def main(model: str, threads: int, batch: int) -> None:
    """Answer until the input ends, as it also does when the parent dies."""

    def load() -> "Whisper":
        from infra.engines.speech.whisper import Whisper

        return Whisper(*whisper_files.find(model), threads)

    WhisperWorker(Pipe(), load, threads, batch).run()
    # Threads may be in the middle of a piece.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
