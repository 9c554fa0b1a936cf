"""A multi-threaded worker on one model: nothing is lost, mixed up or delayed, and memory is released."""

import json
import os
import platform
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import numpy as np
import pytest
import soundfile

from infra.engines.speech import heap, whisper_worker
from infra.engines.speech.heap import KEPT_HEAP
from infra.engines.speech.transcripts import RecognitionResult, Word
from infra.engines.speech.utterances import Piece, PieceText, Utterance
from infra.engines.speech.whisper_worker import WhisperWorker
from infra.engines.speech.worker_protocol import Answer, EngineFailure, Pipe, RecognitionRequest
from streams.voice.speech_segments import RATE, SpeechSegment
from topics.errors import EngineError


class Wires:
    """A `Pipe` whose other end the test holds."""

    def __init__(self) -> None:
        self.sent: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.answers: queue.SimpleQueue[tuple[int, Answer]] = queue.SimpleQueue()

    @property
    def requests(self) -> Iterator[bytes]:
        return iter(self.sent.get, b"")

    def answer(self, number: int, answer: Answer) -> None:
        self.answers.put((number, answer))

    def ask(self, number: int, path: Path | str) -> None:
        self.sent.put(msgspec.json.encode(RecognitionRequest(number, str(path))))

    def next(self) -> tuple[int, Answer]:
        return self.answers.get(timeout=60)


class Model:
    """Returns the start second of each piece, when the test permits."""

    def __init__(self) -> None:
        self.tokens = SimpleNamespace(hints=lambda prompt: ())
        self.begun: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.held = {second: threading.Event() for second in range(10)}

    def find_language(self, samples: Any) -> str:
        return "en"

    def read(self, pieces: Sequence[Piece]) -> list[PieceText]:
        texts = []
        for piece in pieces:
            second = int(piece.utterance.start_s)
            self.begun.put(second)
            assert self.held[second].wait(60)
            if second == 9:
                raise EngineError("it broke")
            if second == 8:
                raise KeyError("yue")
            texts.append(PieceText("en", (Word(f"{second}", second, second + 1.0, 1.0),)))
        return texts


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Wires, Model]]:
    """A worker of two threads; each second of a recording is an utterance that begins at the sample's value."""
    wires, model = Wires(), Model()

    def seconds(samples: Any, longest_s: float) -> Iterator[Utterance]:
        for second in samples[::RATE]:
            at = round(float(second) * 10)
            yield Utterance(at, at + 1.0, (SpeechSegment(at, at + 1.0),))

    monkeypatch.setattr(whisper_worker, "utterances", seconds)
    worker = WhisperWorker(cast("Pipe", wires), lambda: cast("Any", model), threads=2, batch=4)
    thread = threading.Thread(target=worker.run)
    thread.start()
    yield wires, model
    wires.sent.put(b"")
    thread.join(60)
    assert not thread.is_alive()


def recording(path: Path, *seconds: int) -> Path:
    soundfile.write(path, np.repeat(np.array(seconds) / 10, RATE).astype(np.float32), RATE, "FLOAT", format="WAV")
    return path


def said(numbered: tuple[int, Answer]) -> tuple[int, list[str]]:
    number, answer = numbered
    assert isinstance(answer, RecognitionResult)
    return number, [word.text for word in answer.words]


def test_concurrently_decoded_pieces_stay_in_order(world: tuple[Wires, Model], tmp_path: Path) -> None:
    wires, model = world
    wires.ask(1, recording(tmp_path / "a", 1, 2))
    assert {model.begun.get(timeout=60), model.begun.get(timeout=60)} == {1, 2}
    model.held[2].set()
    model.held[1].set()
    assert said(wires.next()) == (1, ["1", "2"])


def test_long_recording_does_not_block_others(world: tuple[Wires, Model], tmp_path: Path) -> None:
    wires, model = world
    wires.ask(1, recording(tmp_path / "a", 1, 2, 3, 4, 5, 6))
    for second in (1, 2, 3, 5, 6):
        model.held[second].set()
    wires.ask(2, recording(tmp_path / "b", 7))
    model.held[7].set()
    assert said(wires.next()) == (2, ["7"])
    model.held[4].set()
    assert said(wires.next()) == (1, list("123456"))


def test_cancelled_and_failed_requests_do_not_affect_others(world: tuple[Wires, Model], tmp_path: Path) -> None:
    wires, model = world
    wires.ask(1, recording(tmp_path / "a", 1))
    assert model.begun.get(timeout=60) == 1
    wires.ask(1, "")
    wires.ask(2, recording(tmp_path / "b", 9))
    assert model.begun.get(timeout=60) == 9
    wires.ask(3, recording(tmp_path / "c", 3))
    for second in (1, 9, 3):
        model.held[second].set()
    answers = dict(wires.next() for _ in range(2))
    assert answers.pop(2) == EngineFailure("it broke")
    assert said(*answers.items()) == (3, ["3"])
    assert wires.answers.empty()


def test_unexpected_failure_ends_no_thread(world: tuple[Wires, Model], tmp_path: Path) -> None:
    wires, model = world
    for second in (8, 1):
        model.held[second].set()
    for number in range(3):
        wires.ask(number, recording(tmp_path / "a", 8))
        assert wires.next() == (number, EngineFailure("'yue'"))
    wires.ask(3, recording(tmp_path / "b", 1))
    assert said(wires.next()) == (3, ["1"])


def test_idle_worker_releases_memory(
    world: tuple[Wires, Model], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wires, model = world
    given: queue.SimpleQueue[int] = queue.SimpleQueue()
    monkeypatch.setattr(whisper_worker, "QUIET_S", 0.05)
    monkeypatch.setattr(heap, "trim", lambda: given.put(1))
    for second in (1, 2):
        model.held[second].set()
        wires.ask(second, recording(tmp_path / "a", second))
        assert said(wires.next())[0] == second
        given.get(timeout=60)


#: Takes and frees 64 MB three times; prints the pages that the kernel supplied each time, and the resident MB before
#: and after they are returned.
TAKING = """
import json, resource
from pathlib import Path
import numpy as np
from infra.engines.speech import heap

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 1_000_000

taken = []
for _ in range(3):
    before = faults()
    np.ones(16_000_000, np.float32)
    taken.append(faults() - before)
kept = resident()
heap.trim()
print(json.dumps([taken, kept, resident()]))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library keeps memory in its own way")
def test_heap_is_kept_between_requests_and_released_when_idle() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TAKING], env=os.environ | KEPT_HEAP, capture_output=True, text=True, check=True
    )
    (_, *again), kept, left = json.loads(done.stdout)
    assert max(again) < 1000, "64 MB are 16,000 pages"
    assert kept - left > 50
