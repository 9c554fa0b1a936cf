"""The manifest of a network that detects two voices at once: its windows and thresholds."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from streams.models.manifest import FILE, PublishedModel, Waveform, file_faults, read_as

RATE: Final = 16_000
#: Samples of the frames in which windows are averaged.
FRAME: Final = 160


class OverlapManifest(PublishedModel, frozen=True, tag_field="kind", tag="overlap"):
    """Everything the service must know about a network that detects two voices at once.

    The graph takes a window, float32[1, samples] in -1..1 at 16 kHz, and returns probabilities, float32[1, frames].
    """

    input: Waveform
    #: Sample at the centre of the first frame, and samples from one frame to the next.
    first: int
    hop: int
    #: Two speak where the probability reaches `onset`, and around it while it is at least `point`.
    onset: float
    point: float
    #: Measured figures of this model, by the names that evaluation prints.
    figures: dict[str, float] = msgspec.field(default_factory=dict)


_DECODER: Final = msgspec.json.Decoder(OverlapManifest)


def read(directory: Path) -> OverlapManifest:
    """Read and check the manifest in `directory`, with the errors of `read_as`."""
    return read_as(directory / FILE, _DECODER, _faults)


def _faults(manifest: OverlapManifest) -> Iterator[str]:
    yield from file_faults("graph", manifest.graph)
    samples = manifest.input.samples
    if manifest.input.sample_rate != RATE or not RATE <= samples <= 60 * RATE or samples % (2 * FRAME):
        yield f"input is {manifest.input}, expected {RATE} Hz, and a multiple of {2 * FRAME} samples, of 1 to 60 s"
    if not 0 <= manifest.first < samples or not 1 <= manifest.hop < samples:
        yield f"first and hop are {manifest.first} and {manifest.hop}, expected less than samples"
    if not 0 < manifest.point <= manifest.onset < 1:
        yield f"point and onset are {manifest.point} and {manifest.onset}, expected 0 < point <= onset < 1"
