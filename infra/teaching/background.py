"""The background of a model: embeddings of many other sounds, the default negatives for a new sound.

YAMNet's embeddings have values from 0 (nine of ten) to 6. Their square roots are stored in 64 steps, which is finer
than the differences between sounds. A second model's embeddings lie around 0 and are stored in 255 steps.
`infra/lab/training/background.py` makes the files.
"""

import lzma
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from infra.teaching.operating_points import Indices
from streams.models import own_sounds
from streams.models.manifest import Manifest
from streams.models.protocol import Floats
from topics.errors import EngineError

HERE: Final = Path(__file__).parent / "background"
#: The authors of the recordings that the files were made from.
ATTRIBUTION: Final = "ATTRIBUTION"
#: Windows of the first model, or contexts of the second one: of a stream, or of a recording.
ContextKind = Literal["", "stream", "recording"]
CONTEXTS: Final[tuple[ContextKind, ...]] = ("stream", "recording")
#: The background has every second window or context of a stream, so that they do not overlap.
STRIDES: Final[Mapping[ContextKind, int]] = {"": 2, "stream": 2, "recording": 1}
STEPS: Final = 63
#: Largest value of an embedding: the activations are clipped there.
LARGEST: Final = 6.0


class Background(msgspec.Struct, frozen=True):
    """Windows of many recordings, a second each, without overlap."""

    #: float32[windows, dimension].
    embeddings: Floats
    #: Number of the recording of each window, ascending, and of the recording's source: intp[windows].
    recording: Indices
    source: Indices
    #: The label of each recording.
    labels: tuple[str, ...]


def path_for(manifest: Manifest, context: ContextKind = "") -> Path:
    """Return the path of the background of a model, or of its second model's contexts; it fits one graph only."""
    if context and manifest.second is not None:
        return HERE / f"{manifest.second.graph.sha256[:16]}-{context}.npy.xz"
    return HERE / f"{manifest.graph.sha256[:16]}.npy.xz"


def read(manifest: Manifest, context: ContextKind = "") -> Background | None:
    """Return the background of a model, or of its second model's contexts; None if there is none.

    Raises:
        EngineError: the file is damaged.
    """
    path = path_for(manifest, context)
    if not path.is_file():
        return None
    try:
        with lzma.open(path) as file:
            stored, numbers, labels = np.load(file), np.load(file), np.load(file)
    except (OSError, ValueError, EOFError, lzma.LZMAError) as error:
        raise EngineError(f"{path}: {error}") from error
    return Background(
        dequantise(stored), numbers[0].astype(np.intp), numbers[1].astype(np.intp), tuple(labels.tolist())
    )


def quantise(embeddings: Floats, context: ContextKind = "") -> npt.NDArray[np.uint8 | np.int8]:
    """Return embeddings (0 to `LARGEST`), or contexts (around 0), as the stored bytes."""
    if context:
        return own_sounds.quantise(embeddings)
    stored: npt.NDArray[np.uint8] = np.rint(np.sqrt(np.clip(embeddings / LARGEST, 0.0, 1.0)) * STEPS).astype(np.uint8)
    return stored


def dequantise(stored: npt.NDArray[np.uint8 | np.int8]) -> Floats:
    """Return the values of stored embeddings: the inverse of `quantise` except for rounding."""
    if stored.dtype == np.int8:
        return own_sounds.dequantise(stored.view(np.int8))
    return np.square(stored.astype(np.float32) / STEPS) * np.float32(LARGEST)
