"""The manifest of a speaker-embedding model: its input, its output, and its thresholds for equal voices."""

import hashlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Final, Literal

import msgspec

from streams.models.manifest import FILE, PublishedModel, file_faults, read_as


class UtteranceInput(msgspec.Struct, frozen=True, tag_field="kind", tag="waveform"):
    """Input of samples, float32[n, samples] of any length; the model runs on [1, samples].

    Audio shorter than `min_samples` is rejected; audio longer than `max_samples` is embedded in pieces.
    """

    sample_rate: int
    min_samples: int
    max_samples: int


class FbankInput(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="fbank"):
    """Input of log-mel filter-bank frames, computed as in Kaldi or NeMo, and perhaps their number.

    The defaults are for CAM++ and WeSpeaker's ECAPA, float32[n, frames, 80]. WeSpeaker scales samples by 32768 and
    uses Hamming windows; NeMo's TitaNet takes float32[n, 80, frames] and int64[n] frames, with `window="hann"`,
    `mel="slaney"`, `remove_dc=False`, `low_hz=0`, `normalisation="mean-variance"`.
    """

    sample_rate: int
    min_samples: int
    max_samples: int
    bands: int = 80
    #: Length of a frame and distance between frames, in seconds.
    frame_s: float = 0.025
    hop_s: float = 0.01
    window: Literal["povey", "hamming", "hann"] = "povey"
    pre_emphasis: float = 0.97
    remove_dc: bool = True
    #: Factor for samples in -1..1.
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
    """How this model separates the speakers of a recording; the threshold is a cosine distance, 0..2."""

    window_s: float
    hop_s: float
    threshold: float


#: Upper limit on a model's `min_samples`, in seconds.
LONGEST_LEAST_S: Final = 60

#: Number of registered speakers for which identification thresholds are measured.
REGISTERED: Final = 10


class IdentificationSettings(msgspec.Struct, frozen=True):
    """How this model identifies registered speakers.

    A voice belongs to the registered speaker whose samples' mean direction has the highest cosine with it, and to
    nobody if that cosine is below `threshold`. At the threshold, at most one in 200 strangers is mistaken for one of
    ten registered speakers, on readers outside the training data.
    """

    threshold: float
    #: Increase of the threshold for each doubling of registered speakers.
    per_doubling: float = 0.0


class SpeakerManifest(PublishedModel, frozen=True, tag_field="kind", tag="speaker-embedding"):
    """Everything the service must know about a speaker-embedding model."""

    input: UtteranceInput | FbankInput
    dimension: int
    #: Cosine from which two utterances count as one voice: the equal error rate point of verification, on readers
    #: outside the training data.
    threshold: float
    diarization: DiarizationSettings | None = None
    identification: IdentificationSettings | None = None
    #: Measured figures of this model, by the names that evaluation prints.
    figures: dict[str, float] = msgspec.field(default_factory=dict)

    @cached_property
    def model_id(self) -> str:
        """`name@graph-input`, with prefixes of SHA-256 in hex; only vectors with equal ids can be compared.

        Thresholds and figures do not affect it.
        """
        input_sha256 = hashlib.sha256(msgspec.json.encode(self.input)).hexdigest()
        return f"{self.name}@{self.graph.sha256[:8]}-{input_sha256[:6]}"

    @property
    def identification_settings(self) -> IdentificationSettings:
        """`identification` or, if unset, the threshold of two utterances."""
        return self.identification or IdentificationSettings(self.threshold)


_DECODER: Final = msgspec.json.Decoder(SpeakerManifest)


def read(directory: Path) -> SpeakerManifest:
    """Read and check the manifest in `directory`, with the errors of `read_as`."""
    return read_as(directory / FILE, _DECODER, faults)


def faults(manifest: SpeakerManifest) -> Iterator[str]:
    """Yield the faults of a manifest that field types do not exclude, one line each."""
    front = manifest.input
    if not 1_000 <= front.sample_rate <= 384_000:
        yield f"sample_rate is {front.sample_rate}, expected 1000 to 384000 Hz"
    if not 1 <= front.min_samples <= front.max_samples // 2:
        yield f"min_samples is {front.min_samples}, expected 1 to half of max_samples ({front.max_samples})"
    if front.min_samples > LONGEST_LEAST_S * front.sample_rate:
        yield f"min_samples is {front.min_samples}, expected at most {LONGEST_LEAST_S} seconds"
    if isinstance(front, FbankInput):
        yield from _fbank_faults(front)
    yield from file_faults("graph", manifest.graph)
    if not 2 <= manifest.dimension <= 8192:
        yield f"dimension is {manifest.dimension}, expected 2 to 8192"
    if not -1 < manifest.threshold < 1:
        yield f"threshold is {manifest.threshold}, expected a cosine between -1 and 1"
    identification = manifest.identification or IdentificationSettings(0.0)
    if not -1 < identification.threshold < 1:
        yield f"identification.threshold is {identification.threshold}, expected a cosine between -1 and 1"
    if not 0 <= identification.per_doubling < 1:
        yield f"identification.per_doubling is {identification.per_doubling}, expected 0 to 1"
    if manifest.diarization is not None:
        yield from _diarization_faults(manifest.diarization, front)


def _fbank_faults(front: FbankInput) -> Iterator[str]:
    frame, hop = front.frame_s * front.sample_rate, front.hop_s * front.sample_rate
    if not 1 <= hop <= frame <= front.min_samples:
        yield f"hop_s and frame_s are {front.hop_s} and {front.frame_s}, expected hop <= frame <= the shortest input"
    if not 1 <= front.bands <= 256:
        yield f"bands is {front.bands}, expected 1 to 256"
    if not 0 <= front.pre_emphasis < 1:
        yield f"pre_emphasis is {front.pre_emphasis}, expected 0 to 1"
    if not front.scale > 0:
        yield f"scale is {front.scale}, expected a positive number"
    high = front.sample_rate / 2 if front.high_hz is None else front.high_hz
    if not 0 <= front.low_hz < high <= front.sample_rate / 2:
        yield f"low_hz and high_hz are {front.low_hz} and {high}, expected 0 <= low < high <= rate / 2"


def _diarization_faults(settings: DiarizationSettings, front: UtteranceInput | FbankInput) -> Iterator[str]:
    if not front.min_samples <= settings.window_s * front.sample_rate <= front.max_samples:
        yield f"diarization.window_s is {settings.window_s}, outside of what the model takes"
    if not 0 < settings.hop_s <= settings.window_s:
        yield f"diarization.hop_s is {settings.hop_s}, expected more than 0, at most the window"
    if not 0 < settings.threshold < 2:
        yield f"diarization.threshold is {settings.threshold}, expected a cosine distance between 0 and 2"
