import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from infra.lab.converters.builder import Builder
from infra.lab.training import resemblyzer
from infra.lab.training.resemblyzer import BANDS, LAYERS, RATE, UNITS
from streams.models.protocol import Floats


@pytest.mark.parametrize("seconds", [0.5, 1.6, 4.0])
def test_utterances_of_any_length_give_unit_vectors(seconds: float) -> None:
    noise = np.random.default_rng(5)

    def drawn(*shape: int) -> Floats:
        return noise.normal(0, 0.1, shape).astype(np.float32)

    weights = {"linear.weight": drawn(UNITS, UNITS), "linear.bias": drawn(UNITS)}
    for layer in range(LAYERS):
        weights[f"lstm.weight_ih_l{layer}"] = drawn(4 * UNITS, UNITS if layer else BANDS)
        weights[f"lstm.weight_hh_l{layer}"] = drawn(4 * UNITS, UNITS)
        weights[f"lstm.bias_ih_l{layer}"] = drawn(4 * UNITS)
        weights[f"lstm.bias_hh_l{layer}"] = drawn(4 * UNITS)
    graph = Builder()
    vector = resemblyzer.add_nodes(graph, "samples", weights)
    inputs = [helper.make_tensor_value_info("samples", TensorProto.FLOAT, ["n", "any"])]
    outputs = [helper.make_tensor_value_info(vector, TensorProto.FLOAT, ["n", UNITS])]
    made = helper.make_graph(graph.nodes, "encoder", inputs, outputs, graph.constants)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    samples = drawn(2, int(seconds * RATE))
    (vectors,) = session.run(None, {"samples": samples})
    assert vectors.shape == (2, UNITS)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)
    (alone,) = session.run(None, {"samples": samples[:1]})
    assert alone[0] == pytest.approx(vectors[0], abs=1e-5)
