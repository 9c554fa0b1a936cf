"""Builds ONNX graphs node by node; equal calls give equal bytes."""

from typing import Final

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

#: Every ONNX Runtime since 1.12 reads operator set 17, which has all operators needed here.
OPSET: Final = 17
IR_VERSION: Final = 8

Attribute = int | str | list[int]


class Builder:
    """Collects nodes and initializers of an ONNX graph."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def model(
        self, name: str, inputs: list[onnx.ValueInfoProto], outputs: list[onnx.ValueInfoProto]
    ) -> onnx.ModelProto:
        return helper.make_model(
            helper.make_graph(self.nodes, name, inputs, outputs, self.constants),
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="earshot",
        )

    def constant(self, name: str, value: npt.NDArray[np.generic]) -> str:
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(self, kind: str, inputs: list[str], output: str, **attributes: Attribute) -> str:
        """Add a node with one output and return the output's name."""
        return self.node_of(kind, inputs, [output], **attributes)[0]

    def node_of(self, kind: str, inputs: list[str], outputs: list[str], **attributes: Attribute) -> list[str]:
        node = helper.make_node(kind, inputs, outputs)
        node.attribute.extend(helper.make_attribute(name, attributes[name]) for name in sorted(attributes))
        self.nodes.append(node)
        return outputs

    def half(self, name: str, values: npt.NDArray[np.float32]) -> str:
        """Add floats stored with 16 bits and return the name of their 32-bit version."""
        return self.node("Cast", [self.constant(f"{name}_half", values.astype(np.float16))], name, to=TensorProto.FLOAT)

    def quantised(self, name: str, values: npt.NDArray[np.float32], together: tuple[int, ...]) -> str:
        """Add floats as int8 with one scale along the axes `together`, and return the name of their floats."""
        scales = np.abs(values).max(axis=together, keepdims=True) / np.float32(127)
        return self.weights(name, np.rint(values / scales).astype(np.int8), scales)

    def weights(self, name: str, integers: npt.NDArray[np.generic], scales: npt.NDArray[np.float32]) -> str:
        """Add int8 weights times float scales (shaped to broadcast) and return the name of the product."""
        cast = self.node("Cast", [self.constant(f"{name}_int8", integers)], f"{name}_cast", to=TensorProto.FLOAT)
        return self.node("Mul", [cast, self.constant(f"{name}_scale", scales)], name)
