"""Makes `infra/models/yamnet_ced/second.onnx` of CED-tiny from the crate soundevents, in int8.

    cargo new --lib ced && cd ced && cargo add soundevents@=0.5.0 --no-default-features && cargo vendor

writes the crate's graph to vendor/soundevents/models/tiny.onnx. `infra.lab.training.second_heads` makes the model of a
bundle with it: log-mel in, scores and embedding out. The crate's graph takes samples, pads them, includes its front end
and hides the embedding. This graph takes 16 to 1008 frames of recipe `ced` and also returns the mean of the tokens.
Matrices have int8 weights. Their inputs become int8 at run time, scaled by the range of the whole input, so run one
look at a time. The same input gives the same bytes.
"""

import hashlib
import logging
import tempfile
from pathlib import Path
from typing import Final

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

from infra.lab.converters.builder import IR_VERSION
from infra.lab.converters.recipes import RECIPES
from topics.errors import EngineError

SHA256: Final = "3890f227660be71886ff48633d11a731993e0206db8a486781412c28a0873435"
CLASSES: Final = 527
#: Size of the embedding, which is the mean of the tokens.
EMBEDDING: Final = 192
INPUT: Final = "log_mel"
OUTPUTS: Final = ("prob", "embedding")
#: Tensors of the crate's graph: log-mel frames, tokens of 16 frames x 16 bands, their mean, and the scores, which are
#: named logits but have passed a sigmoid.
FRAMES, TOKENS, MEAN, SCORES = "mul_53", "conv2d", "mean", "logits"
#: Tensors derived from the number of samples: batch size, tokens in time, and tokens.
BATCH, TIMES, COUNT = "val_0", "val_74", "val_83"
#: Tokens per 16 frames.
ROWS: Final = 4


def rebuild(crate: onnx.ModelProto) -> onnx.ModelProto:
    """Return the crate's graph with float weights: `log_mel` float32[n, 64, frames] in, `prob` and `embedding` out."""
    tensors = {tensor.name: numpy_helper.to_array(tensor) for tensor in crate.graph.initializer}
    tensors["rows"] = np.array([ROWS], np.int64)
    instead = {
        BATCH: helper.make_node("Shape", [INPUT], [BATCH], start=0, end=1),
        TIMES: helper.make_node("Shape", [TOKENS], [TIMES], start=3, end=4),
        COUNT: helper.make_node("Mul", [TIMES, "rows"], [COUNT]),
    }
    nodes: list[NodeProto] = []
    for node in crate.graph.node:
        if node.op_type == "DequantizeLinear":
            integers, scale, zero = (tensors[name] for name in node.input)
            tensors[node.output[0]] = (integers.astype(np.int32) - zero).astype(np.float32) * scale
        elif node.output[0] != FRAMES:
            nodes.append(instead.get(node.output[0], node))
    names = {FRAMES: INPUT, SCORES: OUTPUTS[0], MEAN: OUTPUTS[1]}
    needed, kept = set(OUTPUTS), list[NodeProto]()
    for node in reversed(nodes):
        renamed = helper.make_node(
            node.op_type,
            [names.get(name, name) for name in node.input],
            [names.get(name, name) for name in node.output],
        )
        renamed.attribute.extend(node.attribute)
        if not needed.isdisjoint(renamed.output):
            kept.append(renamed)
            needed.update(renamed.input)
    floats = TensorProto.FLOAT
    bands = RECIPES["ced"].input.shape[1]
    graph = helper.make_graph(
        kept[::-1],
        "ced_tiny",
        [helper.make_tensor_value_info(INPUT, floats, ["n", bands, "frames"])],
        [
            helper.make_tensor_value_info(name, floats, ["n", size])
            for name, size in zip(OUTPUTS, (CLASSES, EMBEDDING), strict=True)
        ],
        [
            numpy_helper.from_array(np.ascontiguousarray(tensors[name]), name)
            for name in sorted(needed & tensors.keys())
        ],
    )
    model: onnx.ModelProto = helper.make_model(
        graph, opset_imports=crate.opset_import, ir_version=IR_VERSION, producer_name="earshot"
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def quantise(model: onnx.ModelProto) -> bytes:
    """Return the ONNX file of a graph whose matrix products have 7-bit weights and a scale per column.

    With 8 bits, sums saturate on processors without VNNI instructions and scores differ.
    """
    # onnxruntime advises to infer shapes first, which changes nothing here.
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as directory:
        small = Path(directory) / "small.onnx"
        quantize_dynamic(
            model,
            small,
            op_types_to_quantize=["MatMul", "Gemm"],
            per_channel=True,
            reduce_range=True,
            weight_type=QuantType.QInt8,
        )
        graph: bytes = onnx.load(small).SerializeToString(deterministic=True)
    logging.disable(logging.NOTSET)
    return graph


def convert(crate: Path) -> bytes:
    """Return the converted graph of the crate's file.

    Raises:
        EngineError: The file is not the expected one.
    """
    content = crate.read_bytes()
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise EngineError(f"{crate.name}: not CED-tiny of the crate soundevents 0.5.0, whose SHA-256 is {SHA256}")
    return quantise(rebuild(onnx.load_model_from_string(content)))
