"""Models in ONNX Runtime."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnxruntime

from streams.engines import manifest
from streams.engines.manifest import LogMel, Manifest
from streams.engines.protocol import Floats
from topics.errors import EngineError


class OnnxEngine:
    """One graph with one input (a batch of patches) and one output (class scores in 0..1).

    The patch goes in as a batch of one: on a CPU larger batches gain nothing, and a batch's size would be a second
    thing that scores depend on. Each run uses the calling thread alone; ONNX Runtime releases the GIL, so callers
    scale by calling from as many threads as there are cores.
    """

    def __init__(self, directory: Path) -> None:
        """Load the model in `directory`.

        Raises:
            EngineError: manifest or graph is missing, damaged, or they do not fit; one line naming the fault.
        """
        self.manifest: Manifest = manifest.read(directory)
        path = directory / self.manifest.graph.file
        self._session = _session(path, self.manifest.graph.sha256)
        self._input = _fitting_input(path, self._session, self.manifest)
        # All tags' classes in a row and where each tag begins: one gather and one segmented maximum per patch.
        self._classes = np.array([index for tag in self.manifest.tags for index in tag.classes], np.intp)
        lengths = [len(tag.classes) for tag in self.manifest.tags]
        self._starts = np.cumsum([0, *lengths[:-1]])

    def scores(self, patch: Floats) -> Floats:
        """Score one patch; see `protocol.Engine`."""
        try:
            (classes,) = self._session.run(None, {self._input: patch[np.newaxis]})
        except Exception as error:  # onnxruntime's errors have no common base
            raise EngineError(f"{self.manifest.model_id}: {_first_line(error)}") from error
        tags: Floats = np.maximum.reduceat(classes[0].take(self._classes), self._starts)
        return tags


def _session(path: Path, sha256: str) -> onnxruntime.InferenceSession:
    try:
        graph = path.read_bytes()
    except OSError as error:
        raise EngineError(f"{path}: {error.strerror}") from error
    if hashlib.sha256(graph).hexdigest() != sha256:
        raise EngineError(f"{path}: not the file that the manifest was made for (its SHA-256 differs)")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # as above
        raise EngineError(f"{path}: {_first_line(error)}") from error


def _fitting_input(path: Path, session: onnxruntime.InferenceSession, known: Manifest) -> str:
    """Return the name of the graph's input, once graph and manifest agree on shapes."""
    inputs, outputs = session.get_inputs(), session.get_outputs()
    if len(inputs) != 1 or len(outputs) != 1:
        raise EngineError(f"{path}: expected one input and one output, not {len(inputs)} and {len(outputs)}")
    given = known.input
    patch = [given.frames, given.bands] if isinstance(given, LogMel) else [given.samples]
    if inputs[0].type != "tensor(float)" or inputs[0].shape[1:] != patch or inputs[0].shape[0] not in ("n", 1):
        raise EngineError(f"{path}: takes {inputs[0].type} {inputs[0].shape}, expected float [n, {patch}]")
    if outputs[0].shape[1:] != [len(known.classes)]:
        raise EngineError(f"{path}: gives {outputs[0].shape}, but the manifest has {len(known.classes)} classes")
    name: str = inputs[0].name
    return name


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
