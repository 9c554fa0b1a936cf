"""Tiny speaker models with random weights: waveform input, and the signatures of CAM++, ECAPA and TitaNet."""

import numpy as np
from onnx import TensorProto, helper

from streams.models.manifest import Graph
from streams.voice.speaker_manifest import FbankInput, SpeakerManifest, UtteranceInput
from tests.unit.streams.models.models import Axes, onnx_bytes

RATE = 16_000
DIMENSION = 8
WAVEFORM = UtteranceInput(RATE, min_samples=RATE // 2, max_samples=4 * RATE)
CAM = FbankInput(RATE, min_samples=RATE // 2, max_samples=4 * RATE)
TITANET = FbankInput(
    RATE,
    RATE // 2,
    4 * RATE,
    window="hann",
    remove_dc=False,
    low_hz=0.0,
    mel="slaney",
    normalisation="mean-variance",
    layout="bands-frames",
)


def graph(
    given: UtteranceInput | FbankInput, length_input: bool = False, dimension: int = DIMENSION, bands: int = 80
) -> bytes:
    """Return a graph that projects the squares' mean over time at random; a length input divides the sums."""
    layout = given.layout if isinstance(given, FbankInput) else "waveform"
    shapes: dict[str, Axes] = {
        "waveform": ["n", "samples"],
        "frames-bands": ["n", "frames", bands],
        "bands-frames": ["n", bands, "frames"],
    }
    inputs: dict[str, Axes] = {"x": shapes[layout]}
    rows = bands if isinstance(given, FbankInput) else 1
    weights = np.random.default_rng(0).standard_normal((rows, dimension)).astype(np.float32)
    time = 2 if layout == "bands-frames" else 1
    nodes = [helper.make_node("Mul", ["x", "x"], ["squares"])]
    if length_input:
        inputs["length"] = ["n"]
        nodes.append(helper.make_node("ReduceSum", ["squares", "time"], ["sums"], keepdims=0))
        nodes.append(helper.make_node("Cast", ["length"], ["count"], to=TensorProto.FLOAT))
        nodes.append(helper.make_node("Div", ["sums", "count"], ["mean"]))
    else:
        nodes.append(helper.make_node("ReduceMean", ["squares"], ["mean"], axes=[time], keepdims=int(rows == 1)))
    nodes.append(helper.make_node("MatMul", ["mean", "w"], ["vector"]))
    constants = {"w": weights, "time": np.array([time])}
    return onnx_bytes(nodes, inputs, {"vector": ["n", dimension]}, constants, {"length": TensorProto.INT64})


def manifest(given: UtteranceInput | FbankInput) -> SpeakerManifest:
    return SpeakerManifest("tiny", "1", "CC0-1.0", "here", Graph("model.onnx", "0" * 64), given, DIMENSION, 0.5)
