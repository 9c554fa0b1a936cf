"""Tiny speaker models with random weights: waveform input, and the signatures of CAM++, ECAPA and TitaNet."""

import hashlib
from pathlib import Path

import msgspec
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from streams.models.manifest import FILE, Graph
from streams.voice.speaker_manifest import FbankInput, SpeakerManifest, UtteranceInput

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
    shapes: dict[str, list[str | int]] = {
        "waveform": ["n", "samples"],
        "frames-bands": ["n", "frames", bands],
        "bands-frames": ["n", bands, "frames"],
    }
    layout = given.layout if isinstance(given, FbankInput) else "waveform"
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shapes[layout])]
    rows = bands if isinstance(given, FbankInput) else 1
    weights = np.random.default_rng(0).standard_normal((rows, dimension)).astype(np.float32)
    time = 2 if layout == "bands-frames" else 1
    nodes = [helper.make_node("Mul", ["x", "x"], ["squares"])]
    constants = [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(np.array([time]), "time")]
    if length_input:
        inputs.append(helper.make_tensor_value_info("length", TensorProto.INT64, ["n"]))
        nodes.append(helper.make_node("ReduceSum", ["squares", "time"], ["sums"], keepdims=0))
        nodes.append(helper.make_node("Cast", ["length"], ["count"], to=TensorProto.FLOAT))
        nodes.append(helper.make_node("Div", ["sums", "count"], ["mean"]))
    else:
        nodes.append(helper.make_node("ReduceMean", ["squares"], ["mean"], axes=[time], keepdims=int(rows == 1)))
    nodes.append(helper.make_node("MatMul", ["mean", "w"], ["vector"]))
    output = helper.make_tensor_value_info("vector", TensorProto.FLOAT, ["n", dimension])
    made = helper.make_graph(nodes, "tiny", inputs, [output], constants)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    data: bytes = onnx.ModelProto.SerializeToString(model)
    return data


def manifest(given: UtteranceInput | FbankInput) -> SpeakerManifest:
    return SpeakerManifest("tiny", "1", "CC0-1.0", "here", Graph("model.onnx", "0" * 64), given, DIMENSION, 0.5)


def write(directory: Path, known: SpeakerManifest, data: bytes) -> Path:
    """Write graph and manifest with the graph's true SHA-256, and return the directory."""
    (directory / known.graph.file).write_bytes(data)
    known = msgspec.structs.replace(known, graph=Graph(known.graph.file, hashlib.sha256(data).hexdigest()))
    (directory / FILE).write_bytes(msgspec.json.encode(known))
    return directory
