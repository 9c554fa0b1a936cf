"""Makes `infra/models/yamnet/model.onnx` of YAMNet's tflite file, for the recipe `yamnet`: log-mel in, scores out.

Weights stay the int8 numbers of the tflite file. ONNX Runtime folds `Cast` and `Mul`, which make them floats, when it
loads the graph, so a call costs as much as with float weights. DequantizeLinear would stay in the graph and cost three
times as much. Activations, quantised in the tflite file, are float here. The same input gives the same bytes.
"""

from typing import Final

import numpy as np
import onnx
from onnx import TensorProto, helper

from infra.lab.converters import tflite_file
from infra.lab.converters.builder import Builder
from infra.lab.converters.front_end import FRONT_END
from topics.errors import EngineError

#: Size of the embedding: the last convolution, averaged over time and bands.
EMBEDDING: Final = 1024
SOURCE: Final = "https://tfhub.dev/google/lite-model/yamnet/classification/tflite/1"
NOTICE: Final = f"""\
YAMNet
Copyright 2019 The TensorFlow Authors. All Rights Reserved.
Licensed under the Apache License, Version 2.0; the text is the file LICENSE at the root of this project.

model.onnx was converted by infra/lab/converters/convert_yamnet.py from the tflite classification model published at
{SOURCE}
Changes: the front end was left out (the graph takes log-mel patches), activations are floats instead of int8; the int8
weights are the same numbers. Class names are those of AudioSet (https://research.google.com/audioset/), CC BY 4.0.
"""


def build(layers: list[tflite_file.Layer]) -> onnx.ModelProto:
    """Return the graph: `log_mel` float32[n, 96, 64] in, `scores` float32[n, classes] and `embedding` [n, 1024] out."""
    *convolutions, dense = layers
    if dense.kind != "dense" or any(layer.kind == "dense" for layer in convolutions):
        raise EngineError("tflite: expected convolutions and one dense layer at the end")
    graph = Builder()
    axes = graph.constant("channel_axis", np.array([1], np.int64))
    last = graph.node("Unsqueeze", ["log_mel", axes], "image")
    graph.constant("zero", np.array(0, np.float32))
    for index, layer in enumerate(convolutions):
        last = _convolution(graph, f"layer{index + 1}", last, layer)
    last = graph.node("ReduceMean", [last], "embedding", axes=[2, 3], keepdims=0)
    weights = graph.weights("dense", dense.weights.integers, dense.weights.scales.reshape(-1, 1))
    bias = graph.constant("dense_bias", dense.bias)
    last = graph.node("Gemm", [last, weights, bias], "logits", transB=1)
    graph.node("Sigmoid", [last], "scores")
    return _model(graph, classes=len(dense.bias))


def _convolution(graph: Builder, name: str, source: str, layer: tflite_file.Layer) -> str:
    # tflite stores [out, height, width, in] and [1, height, width, channels]; ONNX wants [out, in / group, h, w].
    order = (3, 0, 1, 2) if layer.kind == "depthwise" else (0, 3, 1, 2)
    integers = layer.weights.integers.transpose(order)
    weights = graph.weights(f"{name}_weights", integers, layer.weights.scales.reshape(-1, 1, 1, 1))
    last = graph.node(
        "Conv",
        [source, weights, graph.constant(f"{name}_bias", layer.bias)],
        f"{name}_sum",
        auto_pad="SAME_UPPER",
        strides=list(layer.strides),
        kernel_shape=list(integers.shape[2:]),
        group=len(integers) if layer.kind == "depthwise" else 1,
    )
    if layer.clip is None:
        return last
    clip = graph.constant(f"{name}_clip", np.array(layer.clip, np.float32))
    return graph.node("Clip", [last, "zero", clip], name)


def _model(graph: Builder, classes: int) -> onnx.ModelProto:
    patch = helper.make_tensor_value_info("log_mel", TensorProto.FLOAT, ["n", FRONT_END.frames, FRONT_END.bands])
    outputs = [
        helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", classes]),
        helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["n", EMBEDDING]),
    ]
    model = graph.model("yamnet", [patch], outputs)
    onnx.checker.check_model(model, full_check=True)
    return model
