"""ONNX Runtime sends nothing to its maker."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

LOADED = "import os; print(len(os.listdir('/proc/self/task')))"


@pytest.mark.parametrize(
    "loads", ["streams.models.sound_engine", "streams.models.runtime, onnxruntime", "infra.lab, onnxruntime"]
)
def test_onnx_runtime_sends_no_usage_data(tmp_path: Path, loads: str) -> None:
    """It would keep an identifier in the cache directory, and a thread that sends what it collects."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ORT_", "XDG_"))}
    environment |= {"HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", f"import {loads}; {LOADED}"]
    loaded = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert loaded.stdout == "1\n"
    assert list(tmp_path.rglob("*.db")) == []
