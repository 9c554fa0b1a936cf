"""Tiny ONNX models, written to a directory with their manifest."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from streams.models.manifest import FILE, Graph, Manifest, ModelTag, Waveform

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
    axes: Sequence[int | str | None] = ("n", PATCH),
    kind: int = TensorProto.FLOAT,
    given: Sequence[int | str | None] | None = None,
) -> bytes:
    """Return a graph from one input of these axes to float[n, outputs], its first numbers; `given` is declared instead.

    With `operator` "Softmax" over the batch, a patch's scores depend on its neighbours.
    """
    picked = numpy_helper.from_array(np.arange(outputs), "picked")
    row = numpy_helper.from_array(np.array([1, -1]), "row")
    nodes = [
        helper.make_node("Cast", ["patch"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Reshape", ["floats", "row"], ["flat"]),
        helper.make_node("Gather", ["flat", "picked"], ["some"], axis=1),
        helper.make_node(operator, ["some"], ["scores"]),
    ]
    ends = [
        helper.make_tensor_value_info("patch", kind, axes),
        helper.make_tensor_value_info("scores", TensorProto.FLOAT, ("n", outputs) if given is None else given),
    ]
    if operator == "Softmax":
        nodes[-1].attribute.append(helper.make_attribute("axis", 0))
    made = helper.make_graph(nodes, "tiny", ends[:1], ends[1:], [picked, row])
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    data: bytes = onnx.ModelProto.SerializeToString(model)
    return data


def write(directory: Path, manifest: Manifest = MANIFEST, data: bytes | None = None) -> Path:
    """Write graph and manifest with the graph's true SHA-256, and return the directory."""
    data = graph() if data is None else data
    known = msgspec.structs.replace(manifest.graph, sha256=hashlib.sha256(data).hexdigest())
    (directory / known.file).write_bytes(data)
    (directory / FILE).write_bytes(msgspec.json.encode(msgspec.structs.replace(manifest, graph=known)))
    return directory
