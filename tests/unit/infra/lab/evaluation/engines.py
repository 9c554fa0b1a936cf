"""An engine that scores levels: a patch is `Loud` by its high samples, `Deep` by its low ones."""

import numpy as np

from infra.lab.evaluation.labels import Meaning
from infra.lab.evaluation.recordings import Recording, Span
from streams.audio.decode import DecodedAudio
from streams.models.manifest import Graph, Manifest, ModelTag, Waveform
from streams.models.protocol import Floats, SoundEngine

RATE = 1000
LOUD, DEEP = Meaning(("Loud",)), Meaning(("Deep",))


class Levels(SoundEngine):
    """Scores are the mean of the middle of a patch, and of its negative, at least 0.01."""

    def __init__(self, *points: float) -> None:
        tags = tuple(
            ModelTag(name, "Test", (n,), point)
            for n, (name, point) in enumerate(zip(("Loud", "Deep"), points, strict=True))
        )
        graph = Graph("model.onnx", "0" * 64)
        self.manifest = Manifest("levels", "1", "CC0-1.0", "here", graph, Waveform(RATE, RATE), ("loud", "deep"), tags)

    def scores(self, patch: Floats) -> Floats:
        middle = float(patch[400:600].mean())
        return np.array([max(middle, 0.01), max(-middle, 0.01)], np.float32)


def recording(name: str, levels: list[float], *spans: Span, label: str = "") -> Recording:
    """Return a recording with one level per second."""
    samples = np.repeat(np.array(levels, np.float32), RATE)
    return Recording(name, label, spans, DecodedAudio(RATE, samples), name)
