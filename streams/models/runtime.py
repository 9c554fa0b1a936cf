"""Opens sessions of ONNX Runtime with one thread each, from files whose SHA-256 is in the manifest.

Only the first session loads ONNX Runtime: the event loop's process may never need it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from streams.models.manifest import MAX_BYTES
from topics.errors import EngineError

if TYPE_CHECKING:
    import onnxruntime


def open_session(path: Path, sha256: str) -> onnxruntime.InferenceSession:
    """Load the graph in `path`.

    Each run uses only the calling thread; ONNX Runtime releases the GIL, so call from as many threads as there are
    cores.

    Raises:
        EngineError: the file is missing, has another SHA-256, or is not a graph; a message of one line.
    """
    import onnxruntime

    graph = read_file(path, sha256)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Errors are raised; without this, they would be logged as well.
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors have no common base
        raise EngineError(f"{path}: {first_line(error)}") from error


def read_file(path: Path, sha256: str) -> bytes:
    """Read a file of a model.

    Raises:
        EngineError: it cannot be read, is too large, or has another SHA-256.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise EngineError(f"{path}: is larger than {MAX_BYTES} bytes")
        content = path.read_bytes()
    except OSError as error:
        raise EngineError(f"{path}: {error.strerror}") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise EngineError(f"{path}: not the file that the manifest was made for (its SHA-256 differs)")
    return content


def first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
