"""What is not installed with the service: the commands that need it say so, and nothing else needs it."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest

from infra.examples import RECORDING
from infra.extras import EXTRAS

#: Each starts an interpreter.
pytestmark = pytest.mark.slow

BARE = f"import sys; sys.modules.update(dict.fromkeys({sorted(EXTRAS)}))"


def run(code: str, *arguments: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run a program in which no package of an extra can be imported."""
    command = [sys.executable, "-c", f"{BARE}\n{code}", *arguments]
    environment = {"EARSHOT_DATA": str(directory / "data"), "PYTHONPATH": str(Path.cwd())}
    return subprocess.run(command, env=environment, cwd=directory, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("arguments", "package", "extra"),
    [
        (("explore", str(RECORDING), "-o", "picture.png"), "matplotlib", "lab"),
        (("models", "check", "yamnet"), "onnx", "lab"),
    ],
)
def test_says_in_one_line_what_to_install(arguments: tuple[str, ...], package: str, extra: str, tmp_path: Path) -> None:
    done = run("import infra.cli; infra.cli.main()", *arguments, directory=tmp_path)
    line = done.stderr.strip().splitlines()[-1]
    assert (done.returncode, done.stdout) == (1, "")
    assert line.startswith(f"earshot: this needs the package {package}")
    assert f"make extra NAME={extra}," in line
    assert f"earshot-server[{extra}]" in line
    assert "Traceback" not in done.stderr


def test_the_service_and_its_children_need_none(tmp_path: Path) -> None:
    children = "infra.engines.server, infra.engines.speech.whisper_worker, streams.workers.zygote, infra.kafka.node"
    done = run(f"import infra.service.service, {children}", directory=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_model_whose_graph_is_known_is_taken_into_use_without_them(tmp_path: Path) -> None:
    done = run("import infra.cli; infra.cli.main()", "models", "use", "sed-mini", directory=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("in_use  sed-mini@")


def test_extras_are_those_of_the_distribution() -> None:
    declared = {
        (found[1].replace("-", "_"), found[2])
        for line in requires("earshot-server") or []
        if (found := re.match(r"([A-Za-z0-9_-]+).*extra == ['\"](\w+)['\"]", line))
    }
    assert declared == set(EXTRAS.items())
