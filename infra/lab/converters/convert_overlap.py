"""Makes `infra/models/overlap/model.onnx`, which detects two simultaneous voices, from pyannote's segmentation-3.0.

    python -m infra.lab.converters.convert_overlap SEGMENTATION OUT_DIR

SEGMENTATION is `models/segmentation-3.0.onnx` of the crate `diarization` 0.1.0; its SHA-256 is checked. Cargo fetches
it:

    cargo init --bin fetch && cd fetch
    cargo add diarization@=0.1.0 --no-default-features && cargo vendor

The network returns probabilities of seven classes: silence, each of three voices, and each pair. The converted graph
sums the pairs and drops the others. Matrices are stored as int8 with a scale per row and become floats when the graph
is loaded, as in `convert_yamnet`, which makes the file four times smaller. The same input gives the same bytes.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from infra.lab.converters.builder import Builder
from infra.lab.script import parser, run, write_model
from streams.models import runtime
from streams.models.manifest import Graph, Waveform
from streams.voice.overlap_manifest import RATE, OverlapManifest
from topics.errors import EngineError

SHA256: Final = "057ee564753071c0b09b5b611648b50ac188d50846bff5f01e9f7bbf1591ea25"
SOURCE: Final = "https://huggingface.co/pyannote/segmentation-3.0"
NOTICE: Final = f"""\
segmentation-overlap
Copyright (c) 2023 CNRS

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit
persons to whom the Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.

model.onnx is pyannote/segmentation-3.0, published at
{SOURCE}
and taken from the crate diarization 0.1.0 (models/segmentation-3.0.onnx, SHA-256
{SHA256}).
Changes: infra/lab/converters/convert_overlap.py rounded its matrices to 8 bits, and summed the classes of two voices to
one probability.
"""
#: Samples of a window, as in training.
SAMPLES: Final = 160_000
#: Strides of the convolutions and poolings, and the reach of the first frame.
HOP: Final = 270
REACH: Final = 991
CLASSES: Final = 7
#: Index of the first class with two voices.
PAIRS: Final = 4
#: Chosen on meetings and on conversations of readers (`infra.lab.evaluation.overlap`).
ONSET: Final = 0.5
POINT: Final = 0.3
#: Smaller tensors stay floats.
LARGE: Final = 5000
#: The axes of each operator's weight that share one scale.
AXES: Final = {"Conv": (1, 2), "LSTM": (2,), "MatMul": (0,)}


def build(source: onnx.ModelProto) -> onnx.ModelProto:
    """Return the graph: `samples` float32[1, SAMPLES] in, `overlap` float32[1, frames] out.

    Raises:
        EngineError: The source does not end in the logarithm of a softmax.
    """
    *others, last = _without_branches(source.graph.node)
    if last.op_type != "LogSoftmax":
        raise EngineError(f"the graph ends in {last.op_type}, expected LogSoftmax")
    graph = Builder()
    nodes = _needed(others, last.input)
    axes = {name: AXES.get(node.op_type) for node in nodes for name in node.input}
    for tensor in source.graph.initializer:
        if tensor.name not in axes:
            continue
        values = numpy_helper.to_array(tensor)
        together = axes[tensor.name]
        # Rounding the filters of the samples, which have one channel, would cost accuracy.
        if together is None or values.size < LARGE or values.shape[1] == 1:
            graph.constant(tensor.name, values)
        else:
            graph.quantised(tensor.name, values, together)
    graph.node("Unsqueeze", ["samples", graph.constant("channel", np.array([1]))], source.graph.input[0].name)
    graph.nodes += nodes
    graph.node("Softmax", list(last.input), "classes", axis=-1)
    begin, end, axis = (graph.constant(f"of_two_{number}", np.array([number])) for number in (PAIRS, CLASSES, -1))
    graph.node("Slice", ["classes", begin, end, axis], "of_two")
    graph.node("ReduceSum", ["of_two", axis], "overlap", keepdims=0)
    model = graph.model(
        "overlap",
        [helper.make_tensor_value_info("samples", TensorProto.FLOAT, [1, SAMPLES])],
        [helper.make_tensor_value_info("overlap", TensorProto.FLOAT, [1, "frames"])],
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def _without_branches(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Yield nodes that do not depend on the input's shape: there is one channel, and LSTMs start with zeros."""
    for node in nodes:
        copy = NodeProto()
        copy.CopyFrom(node)
        if node.op_type == "If":
            (branch,) = [attribute.g for attribute in node.attribute if attribute.name == "then_branch"]
            (inner,) = branch.node
            copy.CopyFrom(inner)
            copy.output[:] = node.output
        if node.op_type == "LSTM":
            copy.input[:] = node.input[:4]
        yield copy


def _needed(nodes: Sequence[NodeProto], outputs: Iterable[str]) -> list[NodeProto]:
    names, needed = set(outputs), []
    for node in reversed(nodes):
        if names.intersection(node.output):
            names.update(node.input)
            needed.append(node)
    return needed[::-1]


def convert(source: Path, out: Path) -> OverlapManifest:
    """Write model.onnx, manifest.json and NOTICE into `out` and return the manifest.

    Raises:
        EngineError: The source is not the expected file.
    """
    model = build(onnx.load_model_from_string(runtime.read_file(source, SHA256)))
    graph = model.SerializeToString(deterministic=True)
    manifest = OverlapManifest(
        name="segmentation-overlap",
        version="1",
        licence="MIT",
        source=SOURCE,
        graph=Graph(file="model.onnx", sha256=hashlib.sha256(graph).hexdigest()),
        input=Waveform(RATE, SAMPLES),
        first=REACH // 2,
        hop=HOP,
        onset=ONSET,
        point=POINT,
    )
    write_model(out, manifest, {manifest.graph.file: graph}, NOTICE)
    return manifest


def main() -> None:
    options = parser(__doc__, "segmentation", "out_dir").parse_args()
    manifest = convert(options.segmentation, options.out_dir)
    print(f"{manifest.model_id}: {options.out_dir}")


if __name__ == "__main__":
    run(main)
