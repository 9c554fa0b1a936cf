"""Speaker engines: unit vectors from every kind of graph, pieces of long audio, and faults in one line."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from infra import models
from streams.voice import speaker_manifest as manifest
from streams.voice.fbank import fbank
from streams.voice.speaker_engine import OnnxSpeakerEngine, SpeakerEngine
from streams.voice.speaker_manifest import DiarizationSettings, FbankInput, UtteranceInput
from tests.audio import RATE, noise
from tests.unit.streams.models.models import write
from tests.unit.streams.voice import speakers
from topics.errors import AudioError, EngineError

BUNDLED = models.directory(models.SPEAKERS)


def engine(directory: Path, given: UtteranceInput | FbankInput, length_input: bool = False) -> OnnxSpeakerEngine:
    return OnnxSpeakerEngine(
        write(directory, speakers.manifest(given), speakers.graph(given, length_input=length_input))
    )


@pytest.mark.parametrize(
    ("given", "length_input"),
    [(speakers.WAVEFORM, False), (speakers.CAM, False), (speakers.TITANET, True)],
    ids=["waveform", "cam++ and ecapa", "titanet"],
)
def test_every_kind_of_graph_gives_unit_vector(
    tmp_path: Path, given: UtteranceInput | FbankInput, length_input: bool
) -> None:
    made: SpeakerEngine = engine(tmp_path, given, length_input)
    vector = made.embed(noise(RATE))
    assert (vector.dtype.name, vector.shape) == ("float32", (speakers.DIMENSION,))
    assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-6)
    assert (made.embed(noise(RATE)) == vector).all()


@pytest.mark.parametrize("given", [speakers.CAM, speakers.TITANET], ids=["frames-bands", "bands-frames"])
def test_graph_receives_frames_and_their_number(tmp_path: Path, given: FbankInput) -> None:
    weights = np.random.default_rng(0).standard_normal((80, speakers.DIMENSION))
    expected = (fbank(given, noise(RATE)).astype(np.float64) ** 2).mean(axis=0) @ weights
    got = engine(tmp_path, given, length_input=given is speakers.TITANET).embed(noise(RATE))
    np.testing.assert_allclose(got, expected / np.linalg.norm(expected), atol=1e-4)


def test_long_audio_embeds_as_mean_of_equal_pieces(tmp_path: Path) -> None:
    made = engine(tmp_path, speakers.CAM)
    long = noise(9 * RATE)
    total = np.sum([made.embed(piece) for piece in np.array_split(long, 3)], axis=0)
    np.testing.assert_allclose(made.embed(long), total / np.linalg.norm(total), atol=1e-6)


def test_too_short_audio_or_zero_vector_is_rejected(tmp_path: Path) -> None:
    made = engine(tmp_path, speakers.WAVEFORM)
    with pytest.raises(AudioError, match=r"^0\.49 s of audio, a voice needs 0\.50 s$"):
        made.embed(noise(round(0.49 * RATE)))
    with pytest.raises(EngineError, match=r"^tiny@\w{8}-\w{6}: gave a vector of length 0"):
        made.embed(np.zeros(8000, np.float32))
    with pytest.raises(EngineError, match=r"gave a vector of length nan"):
        made.embed(np.full(8000, np.nan, np.float32))


def test_graph_that_contradicts_manifest_is_rejected(tmp_path: Path) -> None:
    known = speakers.manifest(speakers.CAM)
    for data, fault in (
        (speakers.graph(speakers.WAVEFORM), r"takes tensor\(float\) \['n', 'samples'\]; expected float .*80"),
        (speakers.graph(speakers.CAM, bands=64), "takes .*64.*; expected float .*80"),
        (speakers.graph(speakers.TITANET), "takes .*80, 'frames'.*; expected float .*80]"),
        (speakers.graph(speakers.CAM, dimension=9), r"gives \['n', 9\], but the manifest says vectors of 8"),
        (b"\0", "model.onnx: "),
    ):
        with pytest.raises(EngineError, match=rf"model\.onnx: {fault.removeprefix('model.onnx: ')}") as raised:
            OnnxSpeakerEngine(write(tmp_path, known, data))
        assert "\n" not in str(raised.value)


def test_invalid_manifest_is_rejected(tmp_path: Path) -> None:
    good = speakers.manifest(speakers.CAM)
    for field, value, fault in (
        ("threshold", 1.5, "threshold is 1.5"),
        ("dimension", 1, "dimension is 1"),
        ("input", msgspec.structs.replace(speakers.CAM, low_hz=9000.0), "low_hz and high_hz are 9000"),
        ("input", msgspec.structs.replace(speakers.CAM, hop_s=0.03), "hop_s and frame_s are 0.03"),
        ("input", msgspec.structs.replace(speakers.WAVEFORM, min_samples=0), "min_samples is 0"),
        ("input", msgspec.structs.replace(speakers.WAVEFORM, sample_rate=10), "sample_rate is 10"),
        ("diarization", DiarizationSettings(0.1, 0.1, 0.8), "diarization.window_s is 0.1"),
        ("diarization", DiarizationSettings(2.0, 2.5, 0.8), "diarization.hop_s is 2.5"),
        ("diarization", DiarizationSettings(2.0, 1.0, 2.0), "diarization.threshold is 2.0"),
    ):
        known = msgspec.structs.replace(good, **{field: value})
        with pytest.raises(EngineError, match=rf"manifest\.json: {fault}"):
            manifest.read(write(tmp_path, known, b""))
    (tmp_path / "manifest.json").write_text('{"kind": "sound-events"}')
    with pytest.raises(EngineError, match=r"manifest\.json: .*sound-events"):
        manifest.read(tmp_path)
    with pytest.raises(EngineError, match=r"manifest\.json: No such file"):
        manifest.read(tmp_path / "nowhere")


def test_model_id_depends_on_graph_and_input() -> None:
    known = speakers.manifest(speakers.CAM)
    other = msgspec.structs.replace(known, input=msgspec.structs.replace(speakers.CAM, scale=2.0))
    assert known.model_id.split("-")[0] == other.model_id.split("-")[0] == "tiny@00000000"
    assert known.model_id != other.model_id
    assert msgspec.structs.replace(known, threshold=0.1).model_id == known.model_id


def test_bundled_model_embeds_at_any_level() -> None:
    made = OnnxSpeakerEngine(BUNDLED)
    vector = made.embed(noise(2 * RATE))
    assert vector.shape == (made.manifest.dimension,)
    # The level does not change the voice, and silence is no error.
    assert float(vector @ made.embed(noise(2 * RATE) * np.float32(0.01))) > 0.999
    assert np.isfinite(made.embed(np.zeros(8000, np.float32))).all()
    assert (BUNDLED / made.manifest.graph.file).stat().st_size < 5_000_000
