"""Checks the content of an ONNX file before the runtime loads it."""

from collections.abc import Iterator
from typing import Final

import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from topics.errors import EngineError

#: Domains whose operators every ONNX Runtime has.
STANDARD: Final = frozenset(("", "ai.onnx", "ai.onnx.ml"))


def check(name: str, content: bytes) -> None:
    """Check that a file is a self-contained ONNX graph of standard operators.

    Raises:
        EngineError: it is not; one line naming the file and the fault.
    """
    try:
        model = onnx.load_model_from_string(content)
    except Exception as error:  # protobuf does not export its own error for this
        raise EngineError(f"{name}: is not an ONNX file, or cut short") from error
    if not model.graph.node:
        raise EngineError(f"{name}: is not an ONNX file: it holds no graph")
    for fault in _faults(model):
        raise EngineError(f"{name}: {fault}")
    try:
        onnx.checker.check_model(model)
    except (onnx.checker.ValidationError, ValueError) as error:
        raise EngineError(f"{name}: {' '.join(str(error).split())[:300]}") from error


def _faults(model: ModelProto) -> Iterator[str]:
    functions = {(function.domain, function.name) for function in model.functions}
    bodies = [*_graphs(model.graph), *(graph for function in model.functions for graph in _subgraphs(function.node))]
    nodes = [node for part in (*bodies, *model.functions) for node in part.node]
    for node in nodes:
        if node.domain not in STANDARD and (node.domain, node.op_type) not in functions:
            yield f"has the custom operator {node.domain}.{node.op_type}; only standard ONNX operators are run"
    for tensor in _tensors(bodies, nodes):
        if tensor.data_location == TensorProto.EXTERNAL or tensor.external_data:
            where = next((entry.value for entry in tensor.external_data if entry.key == "location"), "elsewhere")
            yield f"keeps the tensor {tensor.name} in another file ({where}); save the model as one file"


def _graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """Yield a graph and the graphs of branches and loops inside its nodes."""
    yield graph
    yield from _subgraphs(graph.node)


def _subgraphs(nodes: list[NodeProto]) -> Iterator[GraphProto]:
    for node in nodes:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                if inner.node:
                    yield from _graphs(inner)


def _tensors(graphs: list[GraphProto], nodes: list[NodeProto]) -> Iterator[TensorProto]:
    for graph in graphs:
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield from (sparse.values, sparse.indices)
    for node in nodes:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
                yield from (sparse.values, sparse.indices)
