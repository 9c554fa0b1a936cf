"""Engines with scores that distinguish every bit of a patch, so that equal scores mean equal patches."""

import zlib
from collections.abc import Callable

import msgspec
import numpy as np

from streams.models.manifest import (
    Context,
    Graph,
    Heads,
    LogMel,
    Manifest,
    ModelTag,
    Output,
    SecondModel,
    SecondTag,
    Waveform,
)
from streams.models.protocol import ContextEngine, Floats, SoundEngine

TAGS = 8
YAMNET = LogMel(
    sample_rate=16_000, frames=96, bands=64, window=400, hop=160, fft=512, low_hz=125.0, high_hz=7500.0, offset=0.001
)
SAMPLES = Waveform(sample_rate=16_000, samples=15_600)
CED = LogMel(16_000, 192, 64, 512, 160, 512, 0.0, 8000.0, 1e-10, power=2, guard="floor", log="dB")


class Fingerprint(SoundEngine):
    """Scores a patch by checksums of its bytes and counts calls."""

    def __init__(self, front: LogMel | Waveform = YAMNET, name: str = "fingerprint") -> None:
        tags = tuple(ModelTag(f"Tag_{n}", "Test", (n,), 0.5) for n in range(TAGS))
        graph = Graph("model.onnx", "0" * 64)
        self.manifest = Manifest(name, "1", "none", "here", graph, front, tuple("abcdefgh"), tags)
        self.asked = 0

    def scores(self, patch: Floats) -> Floats:
        self.asked += 1
        return fingerprint(patch)


class Pair(Fingerprint):
    """Two models: half of a window's score is the checksum of its patches, half that of its context."""

    def __init__(self, front: LogMel | Waveform = YAMNET, gate: float = 0.0) -> None:
        super().__init__(front, "pair")
        file, points = Heads("heads.npy", "0" * 64), (0.5,) * TAGS
        self.gate = gate
        self.manifest = msgspec.structs.replace(
            self.manifest,
            second=SecondModel(
                "second", "1", "none", "here", Graph("second.onnx", "0" * 64), CED, Output(None, "embedding"), TAGS,
                tuple(SecondTag((n,)) for n in range(TAGS)), 0.5, gate,
                stream=Context(120, 1000, file, points),
                recording=Context(192, 2000, file, points),
                dimension=TAGS,
            ),
        )  # fmt: skip
        #: Number of contexts scored.
        self.contexts = 0

    @property
    def second(self) -> ContextEngine:
        return self

    def hear(self, frames: Floats, recording: bool) -> tuple[Floats, Floats]:
        self.contexts += 1
        return fingerprint(frames), 8 * fingerprint(frames)

    def combine(self, scores: Floats, context: Callable[[], Floats]) -> Floats:
        return (scores + (context() if scores.max() >= self.gate else np.float32(0.5))) / np.float32(2)


def fingerprint(patch: Floats) -> Floats:
    """Return TAGS numbers in 0.25..0.75, where stored bytes have their finest steps."""
    # Adding zero turns -0 into 0, which is the same number for every model.
    data = (patch + np.float32(0)).tobytes()
    sums = [zlib.crc32(bytes([tag]) + data) for tag in range(TAGS)]
    return (np.array(sums) / 2**33 + 0.25).astype(np.float32)
