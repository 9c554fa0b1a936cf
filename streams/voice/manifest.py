"""A speaker-embedding model's manifest: what it takes, what it gives, and from which score on voices are one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Final, Literal

import msgspec

from streams.models.manifest import FILE, Graph, file_faults, read_as


class UtteranceInput(msgspec.Struct, frozen=True, tag_field="kind", tag="waveform"):
    """The model takes samples, float32[n, samples] of any length: of ours [1, samples] is asked.

    What is shorter than `min_samples` is refused; what is longer than `max_samples` is embedded in pieces.
    """

    sample_rate: int
    min_samples: int
    max_samples: int


class FbankInput(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="fbank"):
    """The model takes log mel filter-bank frames as Kaldi or NeMo make them, and maybe how many there are.

    The defaults are what CAM++ and the ECAPA of WeSpeaker take, float32[n, frames, 80]. WeSpeaker scales samples by
    32768 and uses Hamming windows; NeMo's TitaNet takes float32[n, 80, frames] and int64[n] frames, made with
    `window="hann"`, `mel="slaney"`, `remove_dc=False`, `low_hz=0`, `normalisation="mean-variance"`.
    """

    sample_rate: int
    min_samples: int
    max_samples: int
    bands: int = 80
    #: Length and distance of frames in seconds.
    frame_s: float = 0.025
    hop_s: float = 0.01
    window: Literal["povey", "hamming", "hann"] = "povey"
    pre_emphasis: float = 0.97
    remove_dc: bool = True
    #: What samples in -1..1 are multiplied by.
    scale: float = 1.0
    low_hz: float = 20.0
    #: None: half the sample rate.
    high_hz: float | None = None
    #: Kaldi: triangles of height one on the HTK mel scale; Slaney: of area one on Slaney's.
    mel: Literal["kaldi", "slaney"] = "kaldi"
    #: Over the frames of one utterance, band by band.
    normalisation: Literal["none", "mean", "mean-variance"] = "mean"
    layout: Literal["frames-bands", "bands-frames"] = "frames-bands"


class DiarizationSettings(msgspec.Struct, frozen=True):
    """How this model is used to tell speakers apart in a recording; the threshold is a cosine distance, 0..2."""

    window_s: float
    hop_s: float
    threshold: float


#: Registered speakers that thresholds of identification are for.
REGISTERED: Final = 10


class IdentificationSettings(msgspec.Struct, frozen=True):
    """How this model is used to name registered speakers.

    A voice is the registered speaker with whom it has the highest cosine, that with the mean direction of the speaker's
    samples, and nobody's where that is below `threshold`: there as many registered speakers are missed as others are
    taken for one of ten, measured on readers that the model was not trained on.
    """

    threshold: float
    #: How much higher that point lies where twice as many are registered: each is one more to be taken for.
    per_doubling: float = 0.0


class SpeakerManifest(
    msgspec.Struct, frozen=True, dict=True, omit_defaults=True, tag_field="kind", tag="speaker-embedding"
):
    """Everything the service has to know about a speaker-embedding model."""

    name: str
    version: str
    licence: str
    source: str
    graph: Graph
    input: UtteranceInput | FbankInput
    #: Length of the vectors.
    dimension: int
    #: Cosine score from which two utterances are taken for one voice: where as many pairs of one reader are missed as
    #: pairs of two are accepted, measured on readers that the model was not trained on.
    threshold: float
    diarization: DiarizationSettings | None = None
    identification: IdentificationSettings | None = None
    #: What was measured of this model, by the names that evaluation prints.
    figures: dict[str, float] = {}

    @cached_property
    def model_id(self) -> str:
        """Return `name@graph-input`, prefixes of SHA-256 in hex; only vectors under one id can be compared.

        Thresholds and figures may change and the model is the same.
        """
        given = hashlib.sha256(msgspec.json.encode(self.input)).hexdigest()
        return f"{self.name}@{self.graph.sha256[:8]}-{given[:6]}"

    @property
    def identifies(self) -> IdentificationSettings:
        """Return how registered speakers are named; by the threshold of two utterances where nothing is set."""
        return self.identification or IdentificationSettings(self.threshold)


def read(directory: Path) -> SpeakerManifest:
    """Read and check the manifest in `directory`.

    Raises:
        EngineError: there is none, or it is wrong; the message names the file and the fault in one line.
    """
    return read_as(directory / FILE, SpeakerManifest, faults)


def faults(manifest: SpeakerManifest) -> Iterator[str]:
    """Yield what is wrong with a manifest beyond the types of its fields, each in a line."""
    given = manifest.input
    if not 1_000 <= given.sample_rate <= 384_000:
        yield f"sample_rate is {given.sample_rate}, expected 1000 to 384000 Hz"
    if not 1 <= given.min_samples <= given.max_samples // 2:
        yield f"min_samples is {given.min_samples}, expected 1 to half of max_samples ({given.max_samples})"
    if isinstance(given, FbankInput):
        yield from _fbank_faults(given)
    yield from file_faults("graph", manifest.graph)
    if not 2 <= manifest.dimension <= 8192:
        yield f"dimension is {manifest.dimension}, expected 2 to 8192"
    if not -1 < manifest.threshold < 1:
        yield f"threshold is {manifest.threshold}, expected a cosine between -1 and 1"
    named = manifest.identification or IdentificationSettings(0.0)
    if not -1 < named.threshold < 1:
        yield f"identification.threshold is {named.threshold}, expected a cosine between -1 and 1"
    if not 0 <= named.per_doubling < 1:
        yield f"identification.per_doubling is {named.per_doubling}, expected 0 to 1"
    if manifest.diarization is not None:
        yield from _diarization_faults(manifest.diarization, given)


def _fbank_faults(given: FbankInput) -> Iterator[str]:
    frame, hop = given.frame_s * given.sample_rate, given.hop_s * given.sample_rate
    if not 1 <= hop <= frame <= given.min_samples:
        yield f"hop_s and frame_s are {given.hop_s} and {given.frame_s}, expected hop <= frame <= the shortest input"
    if not 1 <= given.bands <= 256:
        yield f"bands is {given.bands}, expected 1 to 256"
    if not 0 <= given.pre_emphasis < 1:
        yield f"pre_emphasis is {given.pre_emphasis}, expected 0 to 1"
    if not given.scale > 0:
        yield f"scale is {given.scale}, expected a positive number"
    high = given.sample_rate / 2 if given.high_hz is None else given.high_hz
    if not 0 <= given.low_hz < high <= given.sample_rate / 2:
        yield f"low_hz and high_hz are {given.low_hz} and {high}, expected 0 <= low < high <= rate / 2"


def _diarization_faults(given: DiarizationSettings, known: UtteranceInput | FbankInput) -> Iterator[str]:
    if not known.min_samples <= given.window_s * known.sample_rate <= known.max_samples:
        yield f"diarization.window_s is {given.window_s}, outside of what the model takes"
    if not 0 < given.hop_s <= given.window_s:
        yield f"diarization.hop_s is {given.hop_s}, expected more than 0, at most the window"
    if not 0 < given.threshold < 2:
        yield f"diarization.threshold is {given.threshold}, expected a cosine distance between 0 and 2"
