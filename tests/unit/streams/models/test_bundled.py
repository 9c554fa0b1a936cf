"""The model that ships: its parts fit, it is quiet when there is nothing, and it knows what it hears."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from infra import models
from streams.audio.analysis import Analysis, score_alone
from streams.audio.decode import DecodedAudio, decode_chunk
from streams.models.sound_engine import OnnxSoundEngine
from tests.recordings import clips
from topics.geometry import SENSE, SESSIONS, Geometry
from topics.media import parse
from topics.scores import ZERO

YAMNET = models.directory()
#: Tag of each of the ten labels that the recordings have most of.
LABELS = {
    "dog": "Dog_bark",
    "rooster": "Rooster_crow",
    "rain": "Rain",
    "sea_waves": "Sea_waves",
    "crackling_fire": "Fire_crackle",
    "crying_baby": "Baby_cry",
    "sneezing": "Sneeze",
    "clock_tick": "Clock_tick",
    "helicopter": "Helicopter",
    "chainsaw": "Chainsaw",
}


@cache
def engine() -> OnnxSoundEngine:
    return OnnxSoundEngine(YAMNET)


def test_what_ships() -> None:
    manifest = engine().manifest
    assert (manifest.name, manifest.licence, len(manifest.classes)) == ("yamnet", "Apache-2.0", 521)
    assert len(manifest.tags) == 118
    assert manifest.input.samples == 15_600
    assert (YAMNET / "NOTICE").is_file()
    assert (YAMNET / "model.onnx").stat().st_size < 4_000_000


def test_names_and_paths(tmp_path: Path) -> None:
    assert models.directory("yamnet") == YAMNET
    assert models.directory(str(tmp_path)) == tmp_path
    assert models.directory("nonesuch") == Path("nonesuch")
    assert models.directory("../models/yamnet") == Path("../models/yamnet")


def test_int8_weights_cost_nothing(tmp_path: Path) -> None:
    """Casts and products are folded and activations fused when the graph is loaded: the float graph remains."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "folded.onnx")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(str(YAMNET / "model.onnx"), options, providers=["CPUExecutionProvider"])
    left = [node.op_type for node in onnx.load(tmp_path / "folded.onnx").graph.node]
    assert not {"Cast", "Mul", "Clip", "Relu", "DequantizeLinear"} & set(left)
    assert sum(kind in ("Conv", "FusedConv") for kind in left) == 27


@pytest.mark.parametrize("rate", [8_000, 16_000, 44_100])
@pytest.mark.parametrize("length", [1, 400, 16_000, 40_000])
@pytest.mark.parametrize("geometry", [SESSIONS, SENSE])
def test_silence_is_no_event(rate: int, length: int, geometry: Geometry) -> None:
    analysis = Analysis(engine(), geometry, rate)
    silence = np.zeros(length, np.float32)
    packed = analysis.feed(silence).packed + analysis.finish().packed
    assert len(packed) >= 118
    assert max(packed) < ZERO


def test_the_loudest_sound_has_scores() -> None:
    square = np.where(np.arange(16_000) % 40 < 20, np.float32(2**31), np.float32(-(2**31)))
    assert len(score_alone(engine(), SESSIONS, DecodedAudio(16_000, square))) == 118


@pytest.mark.slow
def test_names_ten_sounds() -> None:
    tags = [tag.name for tag in engine().manifest.tags]
    columns = [tags.index(name) for name in LABELS.values()]
    labelled = [(path, label) for label in LABELS for path in clips(label)]
    assert len(labelled) == 40
    right = 0
    for path, label in labelled:
        pcm = decode_chunk(path.read_bytes(), parse("audio/ogg"))
        analysis = Analysis(engine(), SESSIONS, pcm.rate)
        packed = analysis.feed(pcm.samples).packed + analysis.finish().packed
        margins = np.frombuffer(packed, np.uint8).reshape(-1, len(tags))[:, columns]
        probabilities = 1 / (1 + np.exp(-0.07 * (margins.astype(np.float64) - ZERO)))
        right += list(LABELS)[int(probabilities.mean(axis=0).argmax())] == label
    assert right / len(labelled) > 0.9
