"""A process that recognises speech with Whisper: one copy of the weights for all requests.

It loads the model with the first request. Its threads take pieces of all waiting requests in turn, at most `batch` in
total, and each thread decodes its pieces side by side.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from infra.engines import recording
from infra.engines.speech import heap
from infra.engines.speech.transcripts import RecognitionResult, Word
from infra.engines.speech.utterances import UTTERANCE_S, Piece, PieceText, utterances
from infra.engines.speech.worker_protocol import (
    FAILURES,
    Answer,
    LoadFailure,
    Pipe,
    RecognitionRequest,
    failure,
    request_decoder,
)
from streams.voice.speech_segments import RATE
from topics import languages

if TYPE_CHECKING:
    from infra.engines.speech.whisper import Whisper

#: Idle seconds before the memory of pieces is freed.
QUIET_S: Final = 2.0


class Recording(msgspec.Struct, eq=False):
    """A recording that is being recognised."""

    number: int
    duration_s: float
    #: All its pieces in order of time, and the indexes of those that wait.
    pieces: list[Piece]
    waiting: deque[int]
    done: dict[int, PieceText] = {}

    def result(self) -> RecognitionResult:
        heard = Counter[str]()
        words: list[Word] = []
        for place, text in sorted(self.done.items()):
            words += text.words
            if text.words:
                heard[text.language] += len(self.pieces[place].samples)
        code = heard.most_common(1)[0][0] if heard else None
        return RecognitionResult(self.duration_s, tuple(words), code and languages.name(code).lower())


class WhisperWorker:
    """Answers requests with one loaded model."""

    def __init__(self, pipe: Pipe, load: Callable[[], Whisper], threads: int, batch: int) -> None:
        self._pipe = pipe
        self._load = load
        self._threads = threads
        self._batch = max(1, batch // threads)
        self._model: Whisper | None = None
        #: Guards the recordings, their parts, and the answers.
        self._changed = threading.Condition()
        self._recordings: deque[Recording] = deque()

    def run(self) -> None:
        """Answer until the input ends; later answers are dropped."""
        for line in self._pipe.requests:
            request = request_decoder.decode(line)
            if request.path:
                self._take(request)
            else:
                with self._changed:
                    self._recordings = deque(one for one in self._recordings if one.number != request.number)

    def _take(self, request: RecognitionRequest) -> None:
        try:
            model = self._loaded()
        except FAILURES as error:
            self._answer(request.number, LoadFailure(str(error) or type(error).__name__))
            return
        try:
            opened = _open(model, request)
        except FAILURES as error:
            self._answer(request.number, failure(error))
            return
        if not opened.pieces:
            self._answer(opened.number, opened.result())
            return
        with self._changed:
            self._recordings.append(opened)
            self._changed.notify_all()

    def _loaded(self) -> Whisper:
        if self._model is None:
            self._model = self._load()
            for _ in range(self._threads):
                threading.Thread(target=self._decode_all, args=(self._model,), daemon=True).start()
        return self._model

    def _decode_all(self, model: Whisper) -> None:
        while True:
            with self._changed:
                quiet: float | None = QUIET_S
                while not (batch := self._next()):
                    if not self._changed.wait(quiet):
                        heap.trim()
                        quiet = None
            try:
                texts = model.read([one.pieces[place] for one, place in batch])
            except Exception as error:  # A thread that ends is not replaced.
                for number in {one.number for one, _ in batch}:
                    self._answer(number, failure(error))
                with self._changed:
                    failed = [one for one, _ in batch]
                    self._recordings = deque(one for one in self._recordings if one not in failed)
                continue
            with self._changed:
                self._note(batch, texts)

    def _next(self) -> list[tuple[Recording, int]]:
        """Take pieces of the recordings in turn, and leave some for the other threads."""
        total = sum(len(one.waiting) for one in self._recordings)
        batch: list[tuple[Recording, int]] = []
        while len(batch) < min(self._batch, -(-total // self._threads)):
            one = self._recordings[0]
            self._recordings.rotate(-1)
            if one.waiting:
                batch.append((one, one.waiting.popleft()))
        return batch

    def _note(self, batch: list[tuple[Recording, int]], texts: list[PieceText]) -> None:
        for (one, place), text in zip(batch, texts, strict=True):
            one.done[place] = text
            # A cancelled recording is no longer in the list.
            if len(one.done) == len(one.pieces) and one in self._recordings:
                self._recordings.remove(one)
                self._answer(one.number, one.result())

    def _answer(self, number: int, answer: Answer) -> None:
        with self._changed:
            self._pipe.answer(number, answer)


def _open(model: Whisper, request: RecognitionRequest) -> Recording:
    with open(request.path, "rb") as file:
        samples = recording.load(file, RATE)
    cut = [(utterance, utterance.cut(samples)) for utterance in utterances(samples, UTTERANCE_S)]
    likely = request.likely
    if request.language is None and likely is None and len(cut) > 1:
        likely = model.find_language(max((part for _, part in cut), key=len))
    hints = tuple(model.tokens.hints(request.prompt))
    pieces = [Piece(utterance, part, request.language, likely, request.task, hints) for utterance, part in cut]
    return Recording(request.number, len(samples) / RATE, pieces, deque(range(len(pieces))))
