"""The overlap network equals the published one, with a rewritten graph and rounded matrices."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from infra.lab.converters import convert_overlap
from streams.models.protocol import Floats
from topics.errors import EngineError

SAMPLES = 400
WIDTH = 96


def constant(name: str, *shape: int) -> TensorProto:
    values = np.random.default_rng(len(name)).normal(0, 0.2, shape).astype(np.float32)
    return numpy_helper.from_array(values, name)


def network(last: str = "LogSoftmax") -> onnx.ModelProto:
    """A graph with the parts of the published one: a choice by the input's shape, zeros of an LSTM, classes."""
    weights = [
        constant("filters", WIDTH, 1, 60),
        constant("w", 2, 4 * WIDTH, WIDTH),
        constant("recurrent", 2, 4 * WIDTH, WIDTH),
        constant("bias", 2, 8 * WIDTH),
        constant("middle", 2 * WIDTH, WIDTH),
        constant("classifier", WIDTH, convert_overlap.CLASSES),
        numpy_helper.from_array(np.array(True), "always"),
        numpy_helper.from_array(np.zeros((2, 1, WIDTH), np.float32), "zeros"),
        numpy_helper.from_array(np.array([0, 0, -1]), "joined"),
    ]

    def branch(*nodes: NodeProto) -> GraphProto:
        output = helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)
        return helper.make_graph(nodes, "branch", [], [output])

    filtered = helper.make_node("Conv", ["input", "filters"], ["then"], strides=[10])
    other = helper.make_node("Identity", ["input"], ["else"])
    lstm = ["steps", "w", "recurrent", "bias", "", "zeros", "zeros"]
    nodes = [
        helper.make_node("If", ["always"], ["heard"], then_branch=branch(filtered), else_branch=branch(other)),
        helper.make_node("Transpose", ["heard"], ["steps"], perm=[2, 0, 1]),
        helper.make_node("LSTM", lstm, ["both"], direction="bidirectional", hidden_size=WIDTH),
        helper.make_node("Transpose", ["both"], ["frames"], perm=[2, 0, 1, 3]),
        helper.make_node("Reshape", ["frames", "joined"], ["wide"]),
        helper.make_node("MatMul", ["wide", "middle"], ["narrow"]),
        helper.make_node("MatMul", ["narrow", "classifier"], ["scores"]),
        helper.make_node(last, ["scores"], ["logits"]),
    ]
    given = [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["n", 1, "samples"])]
    made = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "network", given, made, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def run(model: onnx.ModelProto, **inputs: Floats) -> Floats:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    output: Floats = session.run(None, inputs)[0]
    return output


def test_graph_sums_speaker_pair_probabilities() -> None:
    source = network()
    model = convert_overlap.build(source, SAMPLES)
    samples = np.random.default_rng(0).normal(size=(1, SAMPLES)).astype(np.float32)
    classes = np.exp(run(source, input=samples[:, np.newaxis]))
    found = run(model, samples=samples)
    assert found == pytest.approx(classes[..., convert_overlap.PAIRS :].sum(axis=-1), abs=0.02)
    assert found.std() > 0.01
    assert {node.op_type for node in model.graph.node}.isdisjoint({"If", "LogSoftmax"})
    assert len(model.SerializeToString()) < len(source.SerializeToString()) / 2
    assert convert_overlap.build(source, SAMPLES) == model


def test_unexpected_graph_is_rejected() -> None:
    with pytest.raises(EngineError, match="the graph ends in Identity, expected LogSoftmax"):
        convert_overlap.build(network("Identity"), SAMPLES)


def test_file_with_wrong_digest_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "segmentation.onnx"
    other.write_bytes(network().SerializeToString())
    assert convert_overlap.main([str(other), str(tmp_path / "out")]) == 2
    assert "its SHA-256 differs" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
