"""Commands that need an extra report its absence; nothing else needs it."""

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
        (("explore", str(RECORDING)), "infra.lab", "lab"),
        (("evaluate", "--card"), "infra.lab", "lab"),
        (("models", "train-tag", "Bell", "--positives", "."), "infra.lab", "lab"),
        (("models", "calibrate", "yamnet", "--recordings", ".", "--csv", "a.csv"), "infra.lab", "lab"),
        (("models", "add", "a.onnx", "--recipe", "ced"), "infra.lab", "lab"),
        (("models", "check", "yamnet"), "onnx", "lab"),
        (("models", "check", "whisper-base"), "ctranslate2", "speech"),
    ],
)
def test_missing_extra_is_named_in_one_line(
    arguments: tuple[str, ...], package: str, extra: str, tmp_path: Path
) -> None:
    done = run("import infra.cli; infra.cli.main()", *arguments, directory=tmp_path)
    line = done.stderr.strip().splitlines()[-1]
    assert (done.returncode, done.stdout) == (1, "")
    assert line.startswith(f"earshot: this needs the package {package}")
    assert f"make extra NAME={extra}," in line
    assert f"earshot-server[{extra}]" in line
    assert "Traceback" not in done.stderr


def test_extras_match_package_metadata() -> None:
    declared = {"infra.lab": "lab"}
    for distribution in ("earshot-server", "earshot-lab"):
        for line in requires(distribution) or []:
            name, _, extra = line.partition("; extra == ")
            module = re.split("[<=>]", name)[0].replace("-", "_")
            if distribution == "earshot-lab" or extra:
                declared.setdefault(module, extra.strip("'\"") or "lab")
    assert {name: extra for name, extra in declared.items() if not name.startswith("earshot_")} == EXTRAS
