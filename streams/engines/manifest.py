"""A model's manifest: what it takes, what it knows, where it comes from."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Final

import msgspec

from topics.errors import EngineError

FILE: Final = "manifest.json"


class LogMel(msgspec.Struct, frozen=True, tag_field="kind", tag="log-mel"):
    """The model takes patches of log-mel frames, float32[frames, bands]; lengths are in samples of `sample_rate`.

    A frame is log(mel + offset) of the magnitude spectrum under a periodic Hann window, bands on the HTK mel scale.
    """

    sample_rate: int
    frames: int
    bands: int
    #: Length of a frame, distance of frames, length of the transform that the frame is padded to with zeros.
    window: int
    hop: int
    fft: int
    low_hz: float
    high_hz: float
    offset: float

    @property
    def samples(self) -> int:
        """Samples that a patch covers."""
        return self.window + (self.frames - 1) * self.hop


class Waveform(msgspec.Struct, frozen=True, tag_field="kind", tag="waveform"):
    """The model takes patches of samples, float32[samples]."""

    sample_rate: int
    samples: int


class Graph(msgspec.Struct, frozen=True):
    """The model file beside the manifest and its SHA-256 in lower-case hex."""

    file: str
    sha256: str


class Tag(msgspec.Struct, frozen=True):
    """What clients see: the highest score of some classes, reported from the operating point on."""

    name: str
    category: str
    #: Indices into the manifest's classes.
    classes: tuple[int, ...]
    #: Score in (0, 1) from which the tag is reported at sensitivity 0.
    point: float


class Manifest(msgspec.Struct, frozen=True, dict=True):
    """Everything the service has to know about a model."""

    name: str
    version: str
    licence: str
    source: str
    graph: Graph
    input: LogMel | Waveform
    classes: tuple[str, ...]
    tags: tuple[Tag, ...]

    @cached_property
    def model_id(self) -> str:
        """Return `name@sha256 prefix`: two files of one name are two models."""
        return f"{self.name}@{self.graph.sha256[:8]}"

    @cached_property
    def points(self) -> tuple[float, ...]:
        """Operating points of the tags, in order."""
        return tuple(tag.point for tag in self.tags)


def read(directory: Path) -> Manifest:
    """Read and check the manifest in `directory`.

    Raises:
        EngineError: there is none, or it is wrong; the message names the file and the fault in one line.
    """
    path = directory / FILE
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except OSError as error:
        raise EngineError(f"{path}: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise EngineError(f"{path}: {error}") from error
    for fault in faults(manifest):
        raise EngineError(f"{path}: {fault}")
    return manifest


def faults(manifest: Manifest) -> Iterator[str]:
    """Yield what is wrong with a manifest beyond the types of its fields, each in a line."""
    given = manifest.input
    if not 1_000 <= given.sample_rate <= 384_000:
        yield f"sample_rate is {given.sample_rate}, expected 1000 to 384000 Hz"
    if not 1 <= given.samples <= given.sample_rate:
        yield f"a patch covers {given.samples} samples, expected 1 to {given.sample_rate}: one second"
    if isinstance(given, LogMel):
        yield from _front_end_faults(given)
    if len(manifest.graph.sha256) != 64 or not set(manifest.graph.sha256) <= set("0123456789abcdef"):
        yield "graph.sha256 is not a SHA-256 in lower-case hex"
    if Path(manifest.graph.file).name != manifest.graph.file:
        yield f"graph.file is {manifest.graph.file!r}, expected a file beside the manifest"
    yield from _tag_faults(manifest)


def _front_end_faults(given: LogMel) -> Iterator[str]:
    if min(given.frames, given.bands, given.hop) < 1:
        yield "frames, bands and hop must be positive"
    if not 1 <= given.window <= given.fft or given.fft & (given.fft - 1) or not 16 <= given.fft <= 65_536:
        yield f"fft is {given.fft}, expected a power of two from 16 to 65536, at least the window ({given.window})"
    if not 0 <= given.low_hz < given.high_hz <= given.sample_rate / 2:
        yield f"low_hz and high_hz are {given.low_hz} and {given.high_hz}, expected 0 <= low < high <= rate / 2"
    if not given.offset > 0:
        yield f"offset is {given.offset}, expected a positive number"


def _tag_faults(manifest: Manifest) -> Iterator[str]:
    if not manifest.tags:
        yield "it has no tags"
    seen = set()
    for tag in manifest.tags:
        if tag.name in seen:
            yield f"tag {tag.name} is there twice"
        seen.add(tag.name)
        if not tag.classes or not all(0 <= index < len(manifest.classes) for index in tag.classes):
            yield f"tag {tag.name} needs class indices from 0 to {len(manifest.classes) - 1}"
        if not 0 < tag.point < 1:
            yield f"tag {tag.name} has point {tag.point}, expected a number between 0 and 1"
