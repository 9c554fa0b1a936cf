"""The manifest of a speech recognition model: its files, their origin, and its quality."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from streams.models.manifest import FILE, Graph, PublishedModel, file_faults, read_as


class SpeechInput(msgspec.Struct, frozen=True, tag_field="kind", tag="log-mel"):
    """The model takes log-mel frames of mono samples, `seconds` at a time."""

    sample_rate: int = 16_000
    bands: int = 80
    seconds: int = 30


class SpeechManifest(PublishedModel, frozen=True, tag_field="kind", tag="speech-recognition"):
    """Everything that the engine server must know about a speech model in CTranslate2's format.

    Its graph has the weights.
    """

    #: Further files that the model needs.
    files: tuple[Graph, ...]
    input: SpeechInput
    #: False for a model that knows English only.
    multilingual: bool = True
    #: Measured figures of this model, by the names that evaluation prints.
    figures: dict[str, float] = msgspec.field(default_factory=dict)


_DECODER: Final = msgspec.json.Decoder(SpeechManifest)


def read(directory: Path) -> SpeechManifest:
    """Read and check the manifest in `directory`, with the errors of `read_as`."""
    return read_as(directory / FILE, _DECODER, _faults)


def _faults(manifest: SpeechManifest) -> Iterator[str]:
    for file in (manifest.graph, *manifest.files):
        yield from file_faults(file.file, file)
    front = manifest.input
    if (front.sample_rate, front.seconds) != (16_000, 30) or not 1 <= front.bands <= 256:
        yield f"input is {front}, expected 16000 Hz and stretches of 30 s"
