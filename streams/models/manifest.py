"""A model's manifest: what it takes, what it knows, where it comes from."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Final, Literal, TypeVar

import msgspec

from topics.errors import EngineError

Kind = TypeVar("Kind", bound=msgspec.Struct)

FILE: Final = "manifest.json"
#: Larger files than this (the largest of PANNs has a third of it) are taken for a mistake, before they are read.
MAX_BYTES: Final = 1 << 30


class LogMel(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="log-mel"):
    """The model takes patches of log-mel frames, float32[frames, bands]; lengths are in samples of `sample_rate`.

    A frame is the spectrum of samples under a window, weighed into bands, of which the logarithm is taken, all by
    itself: frames that are padded at the edges of a recording, or normalised over all of it, are not to be had. The
    defaults are YAMNet's: ln(mel + offset) of the magnitude spectrum, bands on the HTK mel scale.
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
    #: Keeps the logarithm of silence finite: added to each band, or its least value (`guard`).
    offset: float
    #: a in x[t] - a x[t - 1], which is done to the samples first; a frame then covers one sample more.
    pre_emphasis: float = 0.0
    #: Periodic Hann window (scipy's, torchaudio's) or the symmetric one.
    taper: Literal["hann", "hann-symmetric"] = "hann"
    #: 1: bands are sums of magnitudes, 2: of their squares.
    power: Literal[1, 2] = 1
    mel_scale: Literal["htk", "slaney"] = "htk"
    #: What the triangles of the bands are linear in: mel (TensorFlow, Kaldi) or Hz (librosa, torchaudio).
    mel_slopes: Literal["mel", "hertz"] = "mel"
    #: Triangles of height one, or of area one in Hz.
    mel_norm: Literal["height", "area"] = "height"
    guard: Literal["sum", "floor"] = "sum"
    #: ln x or 10 log10 x.
    log: Literal["ln", "dB"] = "ln"
    #: Last, (x - mean) / std with these numbers.
    mean: float = 0.0
    std: float = 1.0
    #: Order of the axes of the graph's input; an axis of one channel before them is found by itself.
    layout: Literal["frames-bands", "bands-frames"] = "frames-bands"

    @property
    def span(self) -> int:
        """Samples that a frame depends on."""
        return self.window + (self.pre_emphasis > 0)

    @property
    def samples(self) -> int:
        """Samples that a patch covers."""
        return self.span + (self.frames - 1) * self.hop


class Waveform(msgspec.Struct, frozen=True, tag_field="kind", tag="waveform"):
    """The model takes patches of samples, float32[samples]."""

    sample_rate: int
    samples: int


class Graph(msgspec.Struct, frozen=True):
    """The model file beside the manifest and its SHA-256 in lower-case hex."""

    file: str
    sha256: str


class Output(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which outputs of the graph are read, and what has to be done to make class scores in 0..1 of them."""

    #: Name of the class scores, float32[n, classes]; by default the graph's first output.
    scores: str | None = None
    #: Name of the embedding, float32[n, dimension], which heads are trained on; None when the graph gives none.
    embedding: str | None = None
    activation: Literal["none", "sigmoid"] = "none"


class Heads(msgspec.Struct, frozen=True):
    """Logistic regressions on the embedding, in a file beside the manifest: .npy, float32[heads, dimension + 1].

    Score of head h: sigmoid(file[h, :-1] @ embedding + file[h, -1]).
    """

    file: str
    sha256: str


class ModelTag(msgspec.Struct, frozen=True, omit_defaults=True):
    """What clients see: the highest score of some classes and a head, reported from the operating point on."""

    name: str
    category: str
    #: Indices into the manifest's classes.
    classes: tuple[int, ...]
    #: Score in (0, 1) from which the tag is reported at sensitivity 0.
    point: float
    #: Row of the head that scores this tag, too or alone.
    head: int | None = None
    #: Recordings of the sound that the point rests on; 0: on recordings of others alone, where it must not be reported.
    clips: int = 0


class Manifest(msgspec.Struct, frozen=True, dict=True, omit_defaults=True, tag_field="kind", tag="sound-events"):
    """Everything the service has to know about a model."""

    name: str
    version: str
    licence: str
    source: str
    graph: Graph
    input: LogMel | Waveform
    classes: tuple[str, ...]
    tags: tuple[ModelTag, ...]
    output: Output = Output()
    heads: Heads | None = None
    #: What was measured of this model, by the names that `earshot evaluate` prints.
    figures: dict[str, float] = {}

    @cached_property
    def model_id(self) -> str:
        """Return `name@graph-tags`, prefixes of SHA-256 in hex: two models of one name are two models.

        The first is the graph file's, the second that of everything else that stored scores depend on: what is read
        of the graph, heads, tags and operating points. Figures and counts may change and the model is the same.
        """
        tags = [msgspec.structs.replace(tag, clips=0) for tag in self.tags]
        rest = msgspec.json.encode((self.input, self.output, self.heads and self.heads.sha256, tags))
        return f"{self.name}@{self.graph.sha256[:8]}-{hashlib.sha256(rest).hexdigest()[:6]}"

    @cached_property
    def points(self) -> tuple[float, ...]:
        """Operating points of the tags, in order."""
        return tuple(tag.point for tag in self.tags)


def read(directory: Path) -> Manifest:
    """Read and check the manifest in `directory`.

    Raises:
        EngineError: there is none, or it is wrong; the message names the file and the fault in one line.
    """
    return read_as(directory / FILE, Manifest, faults)


def read_as(path: Path, kind: type[Kind], faults: Callable[[Kind], Iterator[str]]) -> Kind:
    """Read a manifest of some kind; see `read`."""
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=kind)
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
    yield from file_faults("graph", manifest.graph)
    if manifest.heads is not None:
        yield from file_faults("heads", manifest.heads)
        if manifest.output.embedding is None:
            yield "it has heads, but output.embedding names no output that they work on"
    yield from _tag_faults(manifest)


def file_faults(field: str, given: Graph | Heads) -> Iterator[str]:
    """Yield what is wrong with the name of a file or its SHA-256."""
    if len(given.sha256) != 64 or not set(given.sha256) <= set("0123456789abcdef"):
        yield f"{field}.sha256 is not a SHA-256 in lower-case hex"
    if Path(given.file).name != given.file:
        yield f"{field}.file is {given.file!r}, expected a file beside the manifest"


def _front_end_faults(given: LogMel) -> Iterator[str]:
    if min(given.frames, given.bands, given.hop) < 1:
        yield "frames, bands and hop must be positive"
    if not 1 <= given.window <= given.fft or given.fft & (given.fft - 1) or not 16 <= given.fft <= 65_536:
        yield f"fft is {given.fft}, expected a power of two from 16 to 65536, at least the window ({given.window})"
    if not 0 <= given.low_hz < given.high_hz <= given.sample_rate / 2:
        yield f"low_hz and high_hz are {given.low_hz} and {given.high_hz}, expected 0 <= low < high <= rate / 2"
    if not given.offset > 0 or not given.std > 0:
        yield f"offset and std are {given.offset} and {given.std}, expected positive numbers"
    if not 0 <= given.pre_emphasis < 1:
        yield f"pre_emphasis is {given.pre_emphasis}, expected 0 to 1"


def _tag_faults(manifest: Manifest) -> Iterator[str]:
    if not manifest.tags:
        yield "it has no tags"
    seen = set()
    for tag in manifest.tags:
        if tag.name in seen:
            yield f"tag {tag.name} is there twice"
        seen.add(tag.name)
        scored = tag.classes or (manifest.heads is not None and tag.head is not None)
        if not scored or not all(0 <= index < len(manifest.classes) for index in tag.classes):
            yield f"tag {tag.name} needs class indices from 0 to {len(manifest.classes) - 1}, or a head"
        if not 0 < tag.point < 1:
            yield f"tag {tag.name} has point {tag.point}, expected a number between 0 and 1"
