"""Writes the speaker net as one ONNX graph: samples in, unit vector out, int8 weights in the file."""

from typing import Final

import msgspec
import numpy as np
import onnx
from onnx import TensorProto, helper

from infra.lab.converters.builder import Builder
from infra.lab.training import speaker_trunk
from streams.models.protocol import Floats

#: Keeps the deviation of a constant feature above zero.
VARIANCE_FLOOR: Final = 1e-5


class Projection(msgspec.Struct, frozen=True):
    """The net's last layer: ((statistics - mean) / deviation) @ matrix, then length one.

    mean and deviation are float32[features], matrix float32[features, dimension].
    """

    mean: Floats
    deviation: Floats
    matrix: Floats


def build(layer: Projection) -> onnx.ModelProto:
    """Return the graph: `samples` float32[n, any] in, `embedding` float32[n, dimension] of length one out."""
    graph = Builder()
    means, deviations = zip(*(_pooled(graph, name) for name in speaker_trunk.maps(graph)), strict=True)
    last = graph.node("Concat", [*means, *deviations], "statistics", axis=1)
    last = graph.node("Sub", [last, graph.constant("statistics_mean", layer.mean)], "centred")
    last = graph.node("Div", [last, graph.constant("statistics_deviation", layer.deviation)], "standard")
    last = graph.node("MatMul", [last, graph.quantised("projection", layer.matrix, (0,))], "vector")
    graph.node("LpNormalization", [last], "embedding", axis=1, p=2)
    embedding = helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["n", layer.matrix.shape[1]])
    model = speaker_trunk.model(graph, "speaker_mini", [embedding])
    onnx.checker.check_model(model, full_check=True)
    return model


def _pooled(graph: Builder, name: str) -> tuple[str, str]:
    """Add mean and standard deviation over time of a map, [n, channels, time, bands] to [n, channels * bands] each."""
    mean = graph.node("ReduceMean", [name], f"{name}_mean", axes=[2], keepdims=1)
    around = graph.node("Sub", [name, mean], f"{name}_around")
    squares = graph.node("Mul", [around, around], f"{name}_squares")
    variance = graph.node("ReduceMean", [squares], f"{name}_variance", axes=[2], keepdims=1)
    floor = graph.constant(f"{name}_floor", np.array(VARIANCE_FLOOR, np.float32))
    deviation = graph.node("Sqrt", [graph.node("Add", [variance, floor], f"{name}_lifted")], f"{name}_deviation")
    return (
        graph.node("Flatten", [mean], f"{name}_mean_flat", axis=1),
        graph.node("Flatten", [deviation], f"{name}_deviation_flat", axis=1),
    )
