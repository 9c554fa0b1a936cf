"""The manifest of a sound-event model: its input, its tags and its origin."""

import hashlib
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Final, Literal, TypeVar

import msgspec

from topics.errors import EngineError

Kind = TypeVar("Kind", bound=msgspec.Struct)

FILE: Final = "manifest.json"
#: Larger files are rejected before they are read; the largest of PANNs has a third of this.
MAX_BYTES: Final = 1 << 30
#: Maximum size of a manifest in bytes; YAMNet's, with 521 classes, has 48 KB.
MANIFEST_BYTES: Final = 4 << 20
MOST_BANDS: Final = 1024
_NOT_JSON: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class LogMel(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="log-mel"):
    """Input of log-mel patches, float32[frames, bands]; lengths are in samples of `sample_rate`.

    A frame is the logarithm of its samples' windowed spectrum, weighted into bands. It depends only on its own samples:
    recordings are neither padded at the edges nor normalised as a whole. The defaults are YAMNet's: ln(mel + offset) of
    the magnitude spectrum, bands on the HTK mel scale.
    """

    sample_rate: int
    frames: int
    bands: int
    #: Length of a frame, distance between frames, and length of the transform, to which frames are zero-padded.
    window: int
    hop: int
    fft: int
    low_hz: float
    high_hz: float
    #: Keeps the logarithm of silence finite: added to each band, or the minimum of a band (`guard`).
    offset: float
    #: a in x[t] - a x[t - 1], applied to the samples first; a frame then covers one more sample.
    pre_emphasis: float = 0.0
    #: The periodic Hann window (as in scipy and torchaudio) or the symmetric one.
    taper: Literal["hann", "hann-symmetric"] = "hann"
    #: 1: bands are sums of magnitudes, 2: of their squares.
    power: Literal[1, 2] = 1
    mel_scale: Literal["htk", "slaney"] = "htk"
    #: Unit in which the bands' triangles are linear: mel (TensorFlow, Kaldi) or Hz (librosa, torchaudio).
    mel_slopes: Literal["mel", "hertz"] = "mel"
    #: Triangles of height one, or of area one in Hz.
    mel_norm: Literal["height", "area"] = "height"
    guard: Literal["sum", "floor"] = "sum"
    #: ln x or 10 log10 x.
    log: Literal["ln", "dB"] = "ln"
    #: Applied last: (x - mean) / std.
    mean: float = 0.0
    std: float = 1.0
    #: Order of the axes of the graph's input; an extra leading axis of one channel is detected.
    layout: Literal["frames-bands", "bands-frames"] = "frames-bands"

    @property
    def span(self) -> int:
        return self.window + (self.pre_emphasis > 0)

    @property
    def samples(self) -> int:
        return self.span + (self.frames - 1) * self.hop

    @property
    def shape(self) -> tuple[int, ...]:
        return self.frames, self.bands


class Waveform(msgspec.Struct, frozen=True, tag_field="kind", tag="waveform"):
    """Input of patches of samples, float32[samples]."""

    sample_rate: int
    samples: int

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.samples,)


class Graph(msgspec.Struct, frozen=True):
    """The model file next to the manifest, and its SHA-256 in lower-case hex."""

    file: str
    sha256: str


class Output(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outputs read from the graph, and how they become class scores in 0..1."""

    #: Name of the class scores, float32[n, classes]; by default the graph's first output.
    scores: str | None = None
    #: Name of the embedding on which heads are trained, float32[n, dimension]; None if the graph has none.
    embedding: str | None = None
    activation: Literal["none", "sigmoid"] = "none"


class Heads(msgspec.Struct, frozen=True):
    """Logistic regressions on the embedding, in a .npy file next to the manifest, float32[heads, dimension + 1].

    Head h scores sigmoid(file[h, :-1] @ embedding + file[h, -1]).
    """

    file: str
    sha256: str


class ModelTag(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tag for clients: the maximum score of some classes and a head, reported from its operating point.

    Without classes and a head, only the second model scores it.
    """

    name: str
    category: str
    #: Indices into the manifest's classes.
    classes: tuple[int, ...]
    #: Score in (0, 1) from which the tag is reported at sensitivity 0.
    point: float
    #: Row of the head that scores this tag, alone or together with the classes.
    head: int | None = None
    #: Recordings of the sound used to choose the point; 0 if only recordings of other sounds were used.
    clips: int = 0


class SecondTag(msgspec.Struct, frozen=True, omit_defaults=True, array_like=True):
    """How a second model scores a tag: the mean of the logits of its highest class and its head.

    If one is missing, the other alone; if both are, the first model alone scores the tag.
    """

    #: Indices into the second model's classes.
    classes: tuple[int, ...] = ()
    #: Row of the heads of each context.
    head: int | None = None


class Context(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a second model hears a kind of audio."""

    #: Number of log-mel frames in a context.
    frames: int
    #: Distance between contexts in milliseconds.
    hop_ms: int
    #: Regressions on the embedding of such a context.
    heads: Heads
    #: Combined score in (0, 1) from which each tag is reported at sensitivity 0.
    points: tuple[float, ...]


class PublishedModel(msgspec.Struct, frozen=True, dict=True, omit_defaults=True):
    """The fields that every manifest begins with."""

    name: str
    version: str
    licence: str
    source: str
    graph: Graph

    @property
    def model_id(self) -> str:
        """`name@graph`, with a prefix of the graph's SHA-256 in hex."""
        return f"{self.name}@{self.graph.sha256[:8]}"


class SecondModel(PublishedModel, frozen=True):
    """A model that hears longer pieces of the audio and contributes to each window's score.

    The graph takes float32[1, bands, frames] or [1, frames, bands] with a dynamic number of frames. A window's logit is
    `weight` times its context's logit plus 1 - `weight` times the first model's (`streams.models.second`).
    """

    #: `frames` is the length of the longest context.
    input: LogMel
    output: Output
    #: Number of its class scores.
    classes: int
    #: In the order of the manifest's tags.
    tags: tuple[SecondTag, ...]
    weight: float
    #: The model hears a window only if the first model gives some tag at least this score.
    gate: float
    #: For streams: the last frames before a whole number of hops, for windows that end then or later.
    stream: Context
    #: For recordings: adjacent blocks, for the windows that begin in them.
    recording: Context
    #: Length of its embedding; 0: it does not support own sounds.
    dimension: int = 0

    def context(self, recording: bool) -> Context:
        return self.recording if recording else self.stream


class TagEvaluation(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tag's results at its operating point on recordings checked by ear, as counts of recordings."""

    #: Recordings with the sound, and how many of them have it reported at the right place.
    clips: int = 0
    found: int = 0
    #: Recordings in which it was reported, and how many of those reports are right.
    reported: int = 0
    right: int = 0
    #: Over recordings in the order of their highest score; None without recordings of the sound.
    average_precision: float | None = None
    #: The tag was learnt from these recordings, so their results are too good.
    learnt: bool = False


class Evaluation(msgspec.Struct, frozen=True):
    """The quality of the operating points."""

    #: Which recordings were used, and how to interpret the results.
    how: str
    recordings: int
    tags: dict[str, TagEvaluation]


class Manifest(PublishedModel, frozen=True, tag_field="kind", tag="sound-events"):
    """Everything the service must know about a sound-event model."""

    input: LogMel | Waveform
    classes: tuple[str, ...]
    tags: tuple[ModelTag, ...]
    output: Output = Output()
    heads: Heads | None = None
    second: SecondModel | None = None
    #: Measured figures of this model, by the names that `earshot evaluate` prints.
    figures: dict[str, float] = {}
    #: Results of the tags at these points.
    evaluation: Evaluation | None = None

    @cached_property
    def model_id(self) -> str:
        """`name@graph-tags`, with prefixes of SHA-256 in hex, which differ whenever stored scores would differ.

        The first hash covers the graph file, the second everything else that affects stored scores: input, outputs,
        heads, tags, operating points and the second model. Figures and numbers of clips do not affect the id.
        """
        tags = [msgspec.structs.replace(tag, clips=0) for tag in self.tags]
        parts: list[object] = [self.input, self.output, self.heads and self.heads.sha256, tags]
        if self.second is not None:
            parts.append(msgspec.structs.replace(self.second, name="", version="", licence="", source="", dimension=0))
        rest = msgspec.json.encode(parts)
        return f"{self.name}@{self.graph.sha256[:8]}-{hashlib.sha256(rest).hexdigest()[:6]}"

    def points(self, recording: bool) -> tuple[float, ...]:
        """Return the score in (0, 1) from which each tag of a recording, or of a stream, is reported."""
        if self.second is not None:
            return self.second.context(recording).points
        return self._points

    @cached_property
    def _points(self) -> tuple[float, ...]:
        return tuple(tag.point for tag in self.tags)


DECODER: Final = msgspec.json.Decoder(Manifest)


def read(directory: Path) -> Manifest:
    """Read and check the manifest in `directory`, with the errors of `read_as`."""
    return read_as(directory / FILE, DECODER, faults)


def read_as(path: Path, decoder: msgspec.json.Decoder[Kind], faults: Callable[[Kind], Iterator[str]]) -> Kind:
    """Read a manifest of any kind, and check it with `faults`.

    The decoder is made where the kind is defined: msgspec 0.22 crashes if two threads decode a type for the first time.

    Raises:
        EngineError: it is missing or wrong; the message names the file and the fault in one line.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MANIFEST_BYTES + 1)
        if len(content) > MANIFEST_BYTES:
            raise EngineError(f"{path}: is larger than {MANIFEST_BYTES} bytes")
        manifest = decoder.decode(content)
    except OSError as error:
        raise EngineError(f"{path}: {error.strerror}") from error
    except _NOT_JSON as error:
        raise EngineError(f"{path}: {error}") from error
    for fault in faults(manifest):
        raise EngineError(f"{path}: {fault}")
    return manifest


def faults(manifest: Manifest) -> Iterator[str]:
    """Yield the faults of a manifest that field types do not exclude, one line each."""
    front = manifest.input
    if not 1_000 <= front.sample_rate <= 384_000:
        yield f"sample_rate is {front.sample_rate}, expected 1000 to 384000 Hz"
    if not 1 <= front.samples <= front.sample_rate:
        yield f"a patch covers {front.samples} samples, expected 1 to {front.sample_rate}: one second"
    if isinstance(front, LogMel):
        yield from _front_end_faults(front)
    yield from file_faults("graph", manifest.graph)
    if manifest.heads is not None:
        yield from file_faults("heads", manifest.heads)
        if manifest.output.embedding is None:
            yield "it has heads, but output.embedding names no output that they work on"
    yield from _tag_faults(manifest)
    if manifest.second is not None:
        yield from _second_faults(manifest, manifest.second)


def _second_faults(manifest: Manifest, second: SecondModel) -> Iterator[str]:
    front = second.input
    yield from (f"second: {fault}" for fault in _front_end_faults(front))
    yield from file_faults("second.graph", second.graph)
    if front.sample_rate != manifest.input.sample_rate:
        yield f"second.input.sample_rate is {front.sample_rate}, expected that of input, {manifest.input.sample_rate}"
    if second.output.embedding is None:
        yield "second.output.embedding names no output that heads work on"
    if len(second.tags) != len(manifest.tags):
        yield f"second.tags has {len(second.tags)} tags, expected {len(manifest.tags)}"
    if not all(0 <= index < second.classes for tag in second.tags for index in tag.classes):
        yield f"second.tags needs class indices from 0 to {second.classes - 1}"
    if not 0 < second.weight < 1 or not 0 <= second.gate <= 1:
        yield f"second.weight and gate are {second.weight} and {second.gate}, expected numbers between 0 and 1"
    for name, context in (("stream", second.stream), ("recording", second.recording)):
        yield from file_faults(f"second.{name}.heads", context.heads)
        if not 1 <= context.frames <= front.frames:
            yield f"second.{name}.frames is {context.frames}, expected 1 to {front.frames}"
        if context.hop_ms < 500 or context.hop_ms % 500:
            yield f"second.{name}.hop_ms is {context.hop_ms}, expected half seconds"
        if len(context.points) != len(manifest.tags) or not all(0 < point < 1 for point in context.points):
            yield f"second.{name}.points needs a number between 0 and 1 for each tag"


def file_faults(field: str, file: Graph | Heads) -> Iterator[str]:
    if len(file.sha256) != 64 or not set(file.sha256) <= set("0123456789abcdef"):
        yield f"{field}.sha256 is not a SHA-256 in lower-case hex"
    if Path(file.file).name != file.file:
        yield f"{field}.file is {file.file!r}, expected a file beside the manifest"


def _front_end_faults(front: LogMel) -> Iterator[str]:
    if min(front.frames, front.bands, front.hop) < 1:
        yield "frames, bands and hop must be positive"
    if front.bands > MOST_BANDS:
        yield f"bands is {front.bands}, expected at most {MOST_BANDS}"
    if not 1 <= front.window <= front.fft or front.fft & (front.fft - 1) or not 16 <= front.fft <= 65_536:
        yield f"fft is {front.fft}, expected a power of two from 16 to 65536, at least the window ({front.window})"
    if not 0 <= front.low_hz < front.high_hz <= front.sample_rate / 2:
        yield f"low_hz and high_hz are {front.low_hz} and {front.high_hz}, expected 0 <= low < high <= rate / 2"
    if not front.offset > 0 or not front.std > 0:
        yield f"offset and std are {front.offset} and {front.std}, expected positive numbers"
    if not 0 <= front.pre_emphasis < 1:
        yield f"pre_emphasis is {front.pre_emphasis}, expected 0 to 1"


def _tag_faults(manifest: Manifest) -> Iterator[str]:
    if not manifest.tags:
        yield "it has no tags"
    seen = set()
    seconds = () if manifest.second is None else manifest.second.tags
    for tag, second in zip_longest(manifest.tags, seconds[: len(manifest.tags)]):
        if tag.name in seen:
            yield f"tag {tag.name} appears twice"
        seen.add(tag.name)
        scored = tag.classes or (manifest.heads is not None and tag.head is not None)
        scored = scored or (second is not None and (second.classes or second.head is not None))
        if not scored or not all(0 <= index < len(manifest.classes) for index in tag.classes):
            yield f"tag {tag.name} needs class indices from 0 to {len(manifest.classes) - 1}, or a head"
        if not 0 < tag.point < 1:
            yield f"tag {tag.name} has point {tag.point}, expected a number between 0 and 1"
