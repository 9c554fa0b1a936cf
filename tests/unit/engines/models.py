"""Tiny ONNX models, written to a directory with their manifest."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from streams.engines.manifest import FILE, Graph, Manifest, Tag, Waveform

PATCH = 400
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
    tags=(Tag("First", "Test", (0,), 0.5), Tag("Any", "Test", (1, 3, 2), 0.25)),
)


def graph(outputs: int = CLASSES, operator: str = "Identity") -> bytes:
    """A graph float[n, PATCH] -> float[n, outputs]."""
    picked = numpy_helper.from_array(np.arange(outputs), "picked")
    nodes = [
        helper.make_node("Gather", ["patch", "picked"], ["some"], axis=1),
        helper.make_node(operator, ["some"], ["scores"]),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size])
        for name, size in (("patch", PATCH), ("scores", outputs))
    ]
    made = helper.make_graph(nodes, "tiny", ends[:1], ends[1:], [picked])
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    data: bytes = onnx.ModelProto.SerializeToString(model)
    return data


def write(directory: Path, manifest: Manifest = MANIFEST, data: bytes | None = None) -> Path:
    """Write graph and manifest, the manifest with the graph's true SHA-256, and return the directory."""
    data = graph() if data is None else data
    known = msgspec.structs.replace(manifest.graph, sha256=hashlib.sha256(data).hexdigest())
    (directory / known.file).write_bytes(data)
    (directory / FILE).write_bytes(msgspec.json.encode(msgspec.structs.replace(manifest, graph=known)))
    return directory
