"""The speaker net's lower half: YAMNet's front end and first layers, from samples to maps over time and frequency."""

from typing import Final

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

from infra import models
from infra.lab.converters.builder import Builder
from infra.lab.converters.front_end import FRONT_END
from streams.audio.logmel import mel_matrix
from streams.models import manifest, runtime

#: Root mean square of every utterance after scaling, which puts the log offset about 35 dB below.
LEVEL: Final = 0.05
SILENCE: Final = 1e-9
#: Layers pooled beside the log-mel frames; higher layers describe sounds more and voices less.
LAYERS: Final = ("layer5", "layer9")
#: Frames between two columns of each map.
STRIDES: Final = (1, 4, 8)


def maps(graph: Builder) -> list[str]:
    """Add the nodes after `samples` float32[n, any]; return the maps' names, float32[n, channels, time, bands].

    One map is the log-mel image, the others are outputs of LAYERS. The weights are YAMNet's.
    """
    directory = models.directory(models.YAMNET)
    yamnet_manifest = manifest.read(directory)
    yamnet = onnx.load_from_string(
        runtime.read_file(directory / yamnet_manifest.graph.file, yamnet_manifest.graph.sha256)
    )
    last = next(index for index, node in enumerate(yamnet.graph.node) if node.output[0] == LAYERS[-1])
    nodes = yamnet.graph.node[: last + 1]
    _log_mel(graph)
    graph.nodes.extend(nodes)
    used = {name for node in nodes for name in node.input}
    graph.constants.extend(constant for constant in yamnet.graph.initializer if constant.name in used)
    image = next(node.output[0] for node in nodes if node.op_type == "Unsqueeze")
    return [image, *LAYERS]


def session() -> onnxruntime.InferenceSession:
    """Return a single-threaded session that computes the maps of samples, float32[1, any]."""
    graph = Builder()
    outputs = [helper.make_empty_tensor_value_info(name) for name in maps(graph)]
    return open_session(model(graph, "speaker_trunk", outputs).SerializeToString())


def open_session(graph: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def model(graph: Builder, name: str, outputs: list[onnx.ValueInfoProto]) -> onnx.ModelProto:
    samples = helper.make_tensor_value_info("samples", TensorProto.FLOAT, ["n", "length"])
    return graph.model(name, [samples], outputs)


def _log_mel(graph: Builder) -> None:
    """Add `log_mel`, float32[n, frames, bands] of levelled `samples`, as `streams.audio.logmel.log_mel_frames` does."""
    squares = graph.node("Mul", ["samples", "samples"], "sample_squares")
    power = graph.node("ReduceMean", [squares], "power", axes=[1], keepdims=1)
    lifted = graph.node("Add", [power, graph.constant("silence", np.array(SILENCE, np.float32))], "power_lifted")
    rms = graph.node("Sqrt", [lifted], "rms")
    gain = graph.node("Div", [graph.constant("level", np.array(LEVEL, np.float32)), rms], "gain")
    levelled = graph.node("Mul", ["samples", gain], "levelled")
    axis = graph.constant("signal_axis", np.array([1], np.int64))
    signal = graph.node("Unsqueeze", [levelled, axis], "signal")
    matrix = mel_matrix(FRONT_END).T.astype(np.float32)
    matrix = matrix[: int(np.flatnonzero(matrix.any(axis=1))[-1]) + 1]
    halves = []
    for kind, kernel in zip(("cos", "sin"), _kernels(graph, len(matrix)), strict=True):
        part = graph.node("Conv", [signal, kernel], f"{kind}_part", strides=[FRONT_END.hop])
        halves.append(graph.node("Mul", [part, part], f"{kind}_power"))
    magnitude = graph.node("Sqrt", [graph.node("Add", halves, "bin_power")], "magnitude")
    turned = graph.node("Transpose", [magnitude], "turned", perm=[0, 2, 1])
    mel = graph.node("MatMul", [turned, graph.constant("bands", matrix)], "mel")
    above = graph.node("Add", [mel, graph.constant("offset", np.array(FRONT_END.offset, np.float32))], "above")
    graph.node("Log", [above], "log_mel")


def _kernels(graph: Builder, bins: int) -> list[str]:
    """Add the Fourier transform as two kernels float32[bins, 1, window], computed when the graph is loaded.

    Products of bin and sample are integers modulo the period, so angles are exact. The file holds a few kilobytes
    instead of half a megabyte.
    """
    rows = graph.constant("rows", np.arange(bins).reshape(-1, 1, 1))
    columns = graph.constant("columns", np.arange(FRONT_END.window))
    products = graph.node("Mul", [rows, columns], "products")
    turns = graph.node("Mod", [products, graph.constant("period", np.array([FRONT_END.fft]))], "turns")
    turns = graph.node("Cast", [turns], "turns_float", to=TensorProto.FLOAT)
    radians = graph.node(
        "Mul", [turns, graph.constant("turn", np.array(2.0 * np.pi / FRONT_END.fft, np.float32))], "radians"
    )
    hann = 0.5 - 0.5 * np.cos(2.0 * np.pi * np.arange(FRONT_END.window) / FRONT_END.window)
    window = graph.constant("hann", hann.astype(np.float32))
    waves = [graph.node(kind, [radians], kind.lower()) for kind in ("Cos", "Sin")]
    return [graph.node("Mul", [wave, window], f"{wave}_kernel") for wave in waves]
