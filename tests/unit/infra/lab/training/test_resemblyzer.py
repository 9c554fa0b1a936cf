"""Resemblyzer's encoder: its file is read without torch, and the graph computes what the formulas of an LSTM say."""

from __future__ import annotations

import hashlib
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from infra.lab.training import resemblyzer
from infra.lab.training.resemblyzer import BANDS, HOP, LAYERS, PART_FRAMES, PART_HOP, UNITS, WINDOW, Weights
from infra.models.builder import IR_VERSION, OPSET, Builder
from streams.models.protocol import Floats
from tests.audio import RATE, noise
from topics.errors import EngineError


@pytest.fixture(scope="module")
def weights() -> Weights:
    rng = np.random.default_rng(0)
    shapes: dict[str, tuple[float, tuple[int, ...]]] = {
        "linear.weight": (0.3, (UNITS, UNITS)),
        "linear.bias": (0.3, (UNITS,)),
    }
    for layer in range(LAYERS):
        for kind, shape in (
            ("weight_ih", (4 * UNITS, UNITS if layer else BANDS)),
            ("weight_hh", (4 * UNITS, UNITS)),
            ("bias_ih", (4 * UNITS,)),
            ("bias_hh", (4 * UNITS,)),
        ):
            shapes[f"lstm.{kind}_l{layer}"] = (0.1, shape)
    # What 16 bits can hold, so that the comparison is exact.
    return {
        name: rng.normal(0, sigma, shape).astype(np.float16).astype(np.float32)
        for name, (sigma, shape) in shapes.items()
    }


@pytest.fixture(scope="module")
def session(weights: Weights) -> onnxruntime.InferenceSession:
    graph = Builder(float_weights=False)
    output = resemblyzer.add_nodes(graph, "samples", weights)
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size])
        for name, size in (("samples", "length"), (output, UNITS))
    ]
    made = helper.make_graph(graph.nodes, "encoder", values[:1], values[1:], graph.constants)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    onnx.checker.check_model(model, full_check=True)
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def expected(weights: Weights, samples: Floats) -> Floats:
    """Return the vector by the formulas: torch.nn.LSTM's, and the mean over parts of `embed_utterance`."""
    padded = np.pad(samples, (WINDOW // 2, WINDOW // 2 - HOP))
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP]
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
    mel = (np.abs(np.fft.rfft(frames * hann)) ** 2) @ resemblyzer.mel_bands()
    spare = max(0, len(mel) - PART_FRAMES)
    steps = -(-spare // PART_HOP)
    vectors = []
    for step in range(steps + 1):
        first = step * spare // max(steps, 1)
        state: Floats = mel[first : first + PART_FRAMES]
        for layer in range(LAYERS):
            one = {kind: weights[f"lstm.{kind}_l{layer}"] for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
            hidden, cell, outputs = np.zeros(UNITS), np.zeros(UNITS), []
            for row in state:
                gates = one["weight_ih"] @ row + one["bias_ih"] + one["weight_hh"] @ hidden + one["bias_hh"]
                enter, forget, new, leave = np.split(gates, 4)
                cell = cell / (1 + np.exp(-forget)) + np.tanh(new) / (1 + np.exp(-enter))
                hidden = np.tanh(cell) / (1 + np.exp(-leave))
                outputs.append(hidden)
            state = np.array(outputs)
        vector = np.maximum(weights["linear.weight"] @ state[-1] + weights["linear.bias"], 0)
        vectors.append(vector / np.linalg.norm(vector))
    mean = np.mean(vectors, axis=0)
    unit: Floats = mean / np.linalg.norm(mean)
    return unit


@pytest.mark.parametrize("seconds", [0.5, 1.6, 1.65, 4.0])
def test_the_graph_is_the_encoder(weights: Weights, session: onnxruntime.InferenceSession, seconds: float) -> None:
    samples = noise(round(seconds * RATE)) * np.float32(0.1)
    vector = session.run(None, {"samples": samples[np.newaxis]})[0][0]
    np.testing.assert_allclose(vector, expected(weights, samples), atol=2e-4)


def test_utterances_side_by_side_are_those_one_by_one(session: onnxruntime.InferenceSession) -> None:
    batch = np.stack([noise(4 * RATE), noise(4 * RATE)[::-1]]) * np.float32(0.1)
    both = session.run(None, {"samples": batch})[0]
    alone = [session.run(None, {"samples": one[np.newaxis]})[0][0] for one in batch]
    np.testing.assert_allclose(both, alone, atol=1e-5)


def test_a_window_of_diarization_is_one_part() -> None:
    frames = (round(1.6 * resemblyzer.RATE) + WINDOW - HOP - WINDOW) // HOP + 1
    assert frames == PART_FRAMES


def wheel(path: Path, content: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(resemblyzer.MEMBER, content)
    return path


def test_another_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="has another SHA-256"):
        resemblyzer.read_weights(wheel(tmp_path / "a.whl", b"weights"))
    with pytest.raises(EngineError, match=r"nowhere\.whl"):
        resemblyzer.read_weights(tmp_path / "nowhere.whl")
    (tmp_path / "b.whl").write_bytes(b"no archive")
    with pytest.raises(EngineError, match=r"b\.whl"):
        resemblyzer.read_weights(tmp_path / "b.whl")


def test_nothing_but_tensors_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Code:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return print, ("run",)

    objects: tuple[object, ...] = (resemblyzer.LEGACY_MAGIC, 1001, {}, OrderedDict(model_state=Code()))
    data = b"".join(pickle.dumps(each, 2) for each in objects)
    monkeypatch.setattr(resemblyzer, "SHA256", hashlib.sha256(data).hexdigest())
    with pytest.raises(EngineError, match="is no tensor"):
        resemblyzer.read_weights(wheel(tmp_path / "c.whl", data))
