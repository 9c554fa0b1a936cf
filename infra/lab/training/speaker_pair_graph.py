"""Writes two speaker networks as one ONNX graph: samples in, one unit vector out, whose cosine is a mean of both."""

from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, compose, helper

from infra.lab.converters.builder import Builder
from infra.lab.training import resemblyzer, speaker_trunk
from infra.lab.training.resemblyzer import Weights
from streams.models.protocol import Floats

#: Root mean square of every utterance after scaling: -30 dB of full scale, as in the encoder's training.
LEVEL: Final = 10.0 ** (-30.0 / 20.0)
SILENCE: Final = 1e-9
#: Weight of the first network in the cosine of two voices; the second has the rest.
FIRST_SHARE: Final = 0.6
#: A telephone removes nearly everything above 4 kHz. Audio is narrow-band if the power between these frequencies is
#: less than this share of the power between the others. Any window of speech through a microphone has 30 times as much.
HIGH_HZ: Final = (4300.0, 7600.0)
LOW_HZ: Final = (300.0, 3400.0)
NARROW_SHARE: Final = 10.0 ** (-55.0 / 10.0)


class Centres(msgspec.Struct, frozen=True):
    """Mean vectors of many voices, those of both networks concatenated, float32[384] each.

    All voices share them, so they identify no one, and a telephone shifts them. Subtracting them makes the vectors of a
    voice with and without a telephone alike.
    """

    wide: Floats
    narrow: Floats


def build(mini: onnx.ModelProto, weights: Weights, centres: Centres) -> onnx.ModelProto:
    """Return the graph: `samples` float32[n, any] in, `embedding` float32[n, dimension] of length one out.

    `mini` comes from `infra.lab.training.speaker_graph`, `weights` from Resemblyzer's encoder.
    """
    graph = Builder()
    first, width = _first(graph, mini)
    second = resemblyzer.add_nodes(graph, _levelled(graph), weights)
    joined = graph.node("Concat", [first, second], "joined", axis=1)
    wide, narrow = (
        graph.constant(f"{name}_centre", values[np.newaxis])
        for name, values in (("wide", centres.wide), ("narrow", centres.narrow))
    )
    centre = graph.node("Where", [_is_narrow(graph), narrow, wide], "centre")
    centred = graph.node("Sub", [joined, centre], "centred")
    sizes = graph.constant("sizes", np.array([width, resemblyzer.UNITS]))
    parts = graph.node_of("Split", [centred, sizes], ["first_part", "second_part"], axis=1)
    weighed = []
    for part, share in zip(parts, (FIRST_SHARE, 1.0 - FIRST_SHARE), strict=True):
        unit = graph.node("LpNormalization", [part], f"{part}_unit", axis=1, p=2)
        factor = graph.constant(f"{part}_factor", np.array(np.sqrt(share), np.float32))
        weighed.append(graph.node("Mul", [unit, factor], f"{part}_weighed"))
    graph.node("Concat", weighed, "embedding", axis=1)
    embedding = helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["n", width + resemblyzer.UNITS])
    model = speaker_trunk.model(graph, "speaker_pair", [embedding])
    onnx.checker.check_model(model, full_check=True)
    return model


def _first(graph: Builder, mini: onnx.ModelProto) -> tuple[str, int]:
    """Add the nodes of a graph that takes `samples`; return its output's name and length."""
    output = mini.graph.output[0]
    width = output.type.tensor_type.shape.dim[1].dim_value
    own = compose.add_prefix(mini, "mini_").graph
    for node in own.node:
        node.input[:] = ["samples" if name == "mini_samples" else name for name in node.input]
    graph.nodes.extend(own.node)
    graph.constants.extend(own.initializer)
    return f"mini_{output.name}", width


def _levelled(graph: Builder) -> str:
    squares = graph.node("Mul", ["samples", "samples"], "pair_squares")
    power = graph.node("ReduceMean", [squares], "pair_power", axes=[1], keepdims=1)
    lifted = graph.node("Add", [power, graph.constant("pair_silence", np.array(SILENCE, np.float32))], "pair_lifted")
    rms = graph.node("Sqrt", [lifted], "pair_rms")
    gain = graph.node("Div", [graph.constant("pair_level", np.array(LEVEL, np.float32)), rms], "pair_gain")
    return graph.node("Mul", ["samples", gain], "pair_levelled")


def _is_narrow(graph: Builder) -> str:
    """Add whether nothing lies above the band of telephones, bool[n, 1]."""
    hertz = np.arange(resemblyzer.WINDOW // 2 + 1) * resemblyzer.RATE / resemblyzer.WINDOW
    mean = graph.node("ReduceMean", [resemblyzer.POWER], "band_mean", axes=[2], keepdims=0)
    high, low = (
        graph.node("MatMul", [mean, graph.constant(f"{name}_bins", _mask(hertz, band))], f"{name}_band")
        for name, band in (("high", HIGH_HZ), ("low", LOW_HZ))
    )
    share = graph.constant("narrow_share", np.array(NARROW_SHARE, np.float32))
    return graph.node("Less", [high, graph.node("Mul", [low, share], "band_least")], "is_narrow")


def _mask(hertz: npt.NDArray[np.float64], band: tuple[float, float]) -> Floats:
    return ((hertz >= band[0]) & (hertz <= band[1])).astype(np.float32)[:, np.newaxis]
