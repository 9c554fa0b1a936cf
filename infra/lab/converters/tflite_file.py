"""Reads the weighted layers of a quantised tflite file: integers with their scales, strides, activations."""

from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import tflite

from topics.errors import EngineError

#: Upper clip of the ReLU by tflite's `ActivationFunctionType`; None for no activation.
ACTIVATIONS: Final = {0: None, 3: 6.0}
SAME_PADDING: Final = 0


class Weights(msgspec.Struct, frozen=True):
    """A constant tensor: integers times a scale per slice of `axis`, bit for bit as in the file."""

    integers: npt.NDArray[np.int8] | npt.NDArray[np.int32]
    #: float32[slices], or float32[1] for one scale over the whole tensor.
    scales: npt.NDArray[np.float32]


class Layer(msgspec.Struct, frozen=True):
    """A convolution or the dense layer at the end."""

    kind: str
    weights: Weights
    bias: npt.NDArray[np.float32]
    strides: tuple[int, int] = (1, 1)
    #: Upper clip of the ReLU after the layer; None if there is none.
    clip: float | None = None


def layers(graph: bytes) -> list[Layer]:
    """Return the weighted layers of a chain of convolutions and dense layers, in order.

    Raises:
        EngineError: The converter does not support the options of an operator.
    """
    model = tflite.Model.GetRootAsModel(graph, 0)
    main = model.Subgraphs(0)
    readers = {
        tflite.BuiltinOperator.CONV_2D: ("conv", tflite.Conv2DOptions),
        tflite.BuiltinOperator.DEPTHWISE_CONV_2D: ("depthwise", tflite.DepthwiseConv2DOptions),
        tflite.BuiltinOperator.FULLY_CONNECTED: ("dense", tflite.FullyConnectedOptions),
    }
    weighted = []
    for index in range(main.OperatorsLength()):
        operator = main.Operators(index)
        code = model.OperatorCodes(operator.OpcodeIndex())
        kind, options = readers.get(max(code.BuiltinCode(), code.DeprecatedBuiltinCode()), ("", None))
        if options is not None and _is_quantised(main, operator):
            options = options()
            table = operator.BuiltinOptions()
            options.Init(table.Bytes, table.Pos)
            weighted.append(_layer(model, main, operator, kind, options))
    return weighted


def _is_quantised(main: tflite.SubGraph, operator: tflite.Operator) -> bool:
    """Return whether an operator is a layer of the network; the front end's mel matrix is a dense layer of floats."""
    return bool(main.Tensors(operator.Inputs(1)).Type() == tflite.TensorType.INT8)


def _layer(
    model: tflite.Model, main: tflite.SubGraph, operator: tflite.Operator, kind: str, options: tflite.Conv2DOptions
) -> Layer:
    activation = options.FusedActivationFunction()
    if activation not in ACTIVATIONS:
        raise EngineError(f"tflite: activation {activation} of a {kind} layer is not supported")
    weights = _weights(model, main.Tensors(operator.Inputs(1)))
    bias = _weights(model, main.Tensors(operator.Inputs(2)))
    strides = (1, 1)
    if kind != "dense":
        if options.Padding() != SAME_PADDING or options.DilationHFactor() != 1 or options.DilationWFactor() != 1:
            raise EngineError(f"tflite: a {kind} layer has padding or dilation that is not supported")
        strides = (options.StrideH(), options.StrideW())
    floats = bias.integers.astype(np.float32) * bias.scales
    return Layer(kind, weights, floats, strides, ACTIVATIONS[activation])


def _weights(model: tflite.Model, tensor: tflite.Tensor) -> Weights:
    kinds = {tflite.TensorType.INT8: np.dtype("<i1"), tflite.TensorType.INT32: np.dtype("<i4")}
    if tensor.Type() not in kinds:
        raise EngineError(f"tflite: {tensor.Name().decode()} is neither int8 nor int32")
    quantization = tensor.Quantization()
    if np.any(quantization.ZeroPointAsNumpy()):
        raise EngineError(f"tflite: {tensor.Name().decode()} is not quantised symmetrically")
    data = model.Buffers(tensor.Buffer()).DataAsNumpy().view(kinds[tensor.Type()])
    return Weights(data.reshape(tensor.ShapeAsNumpy()), quantization.ScaleAsNumpy().astype(np.float32))
