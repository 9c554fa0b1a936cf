"""A process that recognises speech with Whisper: one copy of the weights for all requests.

`python -m infra.engines.whisper_worker MODEL THREADS BATCH` loads the model with the first request. Pieces of all
requests that are there are decoded side by side, at most BATCH of them, which takes less time than one after another.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from infra.engines import recording
from infra.engines.transcripts import RecognitionResult, Word
from infra.engines.utterances import utterances
from infra.engines.whisper_piece import UTTERANCE_S, Piece, PieceText
from infra.engines.worker import FAILURES, LoadFailure, Pipe, RecognitionRequest, failure, request_decoder
from infra.models import whisper_files
from streams.voice.speech_segments import RATE
from topics import languages

if TYPE_CHECKING:
    from infra.engines.whisper import Whisper


class Recording(msgspec.Struct, eq=False):
    """A recording that is being written down."""

    number: int
    duration_s: float
    #: Pieces that wait, and the texts of the others, in order of time.
    waiting: deque[Piece]
    done: list[tuple[Piece, PieceText]] = []

    def result(self) -> RecognitionResult:
        """Return what is said in it."""
        heard = Counter[str]()
        words: list[Word] = []
        for piece, text in self.done:
            words += text.words
            if text.words:
                heard[text.language] += len(piece.samples)
        code = heard.most_common(1)[0][0] if heard else None
        return RecognitionResult(self.duration_s, tuple(words), code and languages.name(code).lower())


class WhisperWorker:
    """Answers requests with one loaded model."""

    def __init__(self, pipe: Pipe, load: Callable[[], Whisper], batch: int) -> None:
        self._pipe = pipe
        self._load = load
        self._batch = batch
        self._model: Whisper | None = None
        #: None: the input has ended.
        self._requests: queue.SimpleQueue[RecognitionRequest | None] = queue.SimpleQueue()
        self._recordings: deque[Recording] = deque()

    def run(self) -> None:
        """Answer until the input ends."""
        threading.Thread(target=self._listen, daemon=True).start()
        while self._take():
            self._pipe.proceed()
            if self._recordings:
                self._decode()

    def _listen(self) -> None:
        for line in self._pipe.requests:
            self._requests.put(request_decoder.decode(line))
        self._requests.put(None)

    def _take(self) -> bool:
        """Take the requests that are there, one at least while there is no recording; return False at the end."""
        while not self._recordings or not self._requests.empty():
            request = self._requests.get()
            if request is None:
                return False
            if not request.path:
                self._recordings = deque(one for one in self._recordings if one.number != request.number)
                continue
            if self._model is None:
                try:
                    self._model = self._load()
                except FAILURES as error:
                    self._pipe.answer(request.number, LoadFailure(str(error) or type(error).__name__))
                    continue
            try:
                opened = self._open(self._model, request)
            except FAILURES as error:
                self._pipe.answer(request.number, failure(error))
                continue
            if opened.waiting:
                self._recordings.append(opened)
            else:
                self._pipe.answer(opened.number, opened.result())
        return True

    def _open(self, model: Whisper, request: RecognitionRequest) -> Recording:
        with open(request.path, "rb") as file:
            samples = recording.load(file, RATE)
        cut = [(utterance, utterance.cut(samples)) for utterance in utterances(samples, UTTERANCE_S)]
        likely = request.likely
        if request.language is None and likely is None and len(cut) > 1:
            likely = model.find_language(max((part for _, part in cut), key=len))
        hints = tuple(model.tokens.hints(request.prompt))
        pieces = (Piece(utterance, part, request.language, likely, request.task, hints) for utterance, part in cut)
        return Recording(request.number, len(samples) / RATE, deque(pieces))

    def _decode(self) -> None:
        """Decode pieces of the recordings in turn, and answer those that are done."""
        assert self._model is not None
        batch: list[tuple[Recording, Piece]] = []
        turn = deque(self._recordings)
        while turn and len(batch) < self._batch:
            one = turn.popleft()
            batch.append((one, one.waiting.popleft()))
            if one.waiting:
                turn.append(one)
        try:
            texts = self._model.read([piece for _, piece in batch])
        except FAILURES as error:
            for number in {one.number for one, _ in batch}:
                self._pipe.answer(number, failure(error))
            failed = [one for one, _ in batch]
            self._recordings = deque(one for one in self._recordings if one not in failed)
            return
        for (one, piece), text in zip(batch, texts, strict=True):
            one.done.append((piece, text))
        for one in [one for one in self._recordings if not one.waiting]:
            self._recordings.remove(one)
            self._pipe.answer(one.number, one.result())


def load(model: str, threads: int) -> Whisper:
    """Return a loaded model.

    Raises:
        EngineError: a file is missing or another one, or the model cannot be loaded.
        ImportError: the runtime cannot be loaded.
    """
    from infra.engines.whisper import Whisper

    return Whisper(*whisper_files.find(model), threads)


def main(arguments: list[str] | None = None) -> None:
    """Answer until the input ends; when the parent has died, exit before the next pieces."""
    # Threads that wait for each other sleep: with live audio beside them, spinning takes time from those that work.
    os.environ.setdefault("KMP_BLOCKTIME", "0")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    model, threads, batch = arguments or sys.argv[1:]
    WhisperWorker(Pipe(), lambda: load(model, int(threads)), int(batch)).run()


if __name__ == "__main__":
    main()
