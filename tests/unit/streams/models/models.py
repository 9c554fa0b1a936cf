"""Tiny ONNX models, written to a directory with their manifest."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from streams.models.manifest import FILE, Graph, Manifest, ModelTag, Waveform
from streams.voice.speaker_manifest import SpeakerManifest

Axes = Sequence[int | str | None]

PATCH = 800
#: Class c scores sample c of the patch.
CLASSES = 4
MANIFEST = Manifest(
    name="tiny",
    version="1",
    licence="CC0-1.0",
    source="here",
    graph=Graph("model.onnx", "0" * 64),
    input=Waveform(sample_rate=1000, samples=PATCH),
    classes=("a", "b", "c", "d"),
    tags=(ModelTag("First", "Test", (0,), 0.5), ModelTag("Any", "Test", (1, 3, 2), 0.25)),
)


def graph(
    outputs: int = CLASSES,
    operator: str = "Identity",
    axes: Axes = ("n", PATCH),
    kind: int = TensorProto.FLOAT,
    given: Axes | None = None,
) -> bytes:
    """Return a graph from one input of these axes to float[n, outputs], its first numbers; `given` is declared instead.

    With `operator` "Softmax" over the batch, a patch's scores depend on its neighbours.
    """
    nodes = [
        helper.make_node("Cast", ["patch"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Reshape", ["floats", "row"], ["flat"]),
        helper.make_node("Gather", ["flat", "picked"], ["some"], axis=1),
        helper.make_node(operator, ["some"], ["scores"]),
    ]
    if operator == "Softmax":
        nodes[-1].attribute.append(helper.make_attribute("axis", 0))
    scores = {"scores": ("n", outputs) if given is None else given}
    constants = {"picked": np.arange(outputs), "row": np.array([1, -1])}
    return onnx_bytes(nodes, {"patch": axes}, scores, constants, {"patch": kind})


def onnx_bytes(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Axes],
    outputs: Mapping[str, Axes],
    constants: Mapping[str, npt.NDArray[Any]] = {},
    kinds: Mapping[str, int] = {},
) -> bytes:
    """Return a graph; its inputs and outputs are floats unless `kinds` has another type."""
    given, found = (
        [helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT), ends[name]) for name in ends]
        for ends in (inputs, outputs)
    )
    kept = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "tiny", given, found, kept)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    data: bytes = onnx.ModelProto.SerializeToString(model)
    return data


def write(directory: Path, manifest: Manifest | SpeakerManifest = MANIFEST, data: bytes | None = None) -> Path:
    """Write graph and manifest with the graph's true SHA-256, and return the directory."""
    data = graph() if data is None else data
    known = msgspec.structs.replace(manifest.graph, sha256=hashlib.sha256(data).hexdigest())
    (directory / known.file).write_bytes(data)
    (directory / FILE).write_bytes(msgspec.json.encode(msgspec.structs.replace(manifest, graph=known)))
    return directory
