"""The distribution earshot-client: built, installed alone, and used as its README describes."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
import soundfile

from infra.examples import RECORDING
from tests.contract.api import Service
from tests.interop.environments import NotInstallableError, install, run

pytestmark = pytest.mark.slow

ROOT: Final = Path(__file__).parent.parent.parent
SOURCE: Final = ROOT / "app" / "client"
SNIPPETS: Final = re.findall(r"```python\n(.*?)```", (SOURCE / "README.md").read_text(), re.DOTALL)

TYPED: Final = """
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from earshot_client import AsyncClient, Client, Event, JobResult

client = Client("http://127.0.0.1:8000", "key")
events: Iterator[Event] = client.detect(Path("a.wav"), timeout=1.5)
result: JobResult = client.job_result("j")


async def events_of(client: AsyncClient) -> AsyncIterator[Event]:
    status = await client.session_status("s")
    for event in status.page.events:
        yield event
"""
MISTYPED: Final = """
from earshot_client import Client

Client("http://127.0.0.1:8000", "key").put_chunk("s", "0", b"")
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    try:
        builder = install(folder / "builder", "hatchling")
    except NotInstallableError as error:
        pytest.skip(str(error))
    run(builder, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=SOURCE)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def python(wheel: Path) -> Path:
    """The interpreter of an environment with the client and its dependencies."""
    return install(wheel.parent / "bare", str(wheel))


def test_declared_dependencies_are_few(python: Path) -> None:
    requires = run(python, "-c", "from importlib.metadata import requires; print(*requires('earshot-client'))")
    assert re.findall(r"([\w-]+)[<>=]", requires) == ["anyio", "httpx2", "msgspec", "websockets"]


def test_wheel_contains_whole_package(python: Path) -> None:
    folder = Path(run(python, "-c", "import earshot_client; print(earshot_client.__path__[0])").strip())
    modules = {file.name for file in (SOURCE / "earshot_client").glob("*.py")} | {"py.typed"}
    assert {file.name for file in folder.iterdir()} - {"__pycache__"} == modules
    (licence,) = folder.parent.glob("earshot_client-*.dist-info/licenses/LICENSE")
    assert licence.read_text() == (ROOT / "LICENSE").read_text()


def test_package_is_typed(python: Path, tmp_path: Path) -> None:
    programs = {"mistyped": MISTYPED, "typed": TYPED, **{f"readme{n}": text for n, text in enumerate(SNIPPETS)}}
    for name, text in programs.items():
        (tmp_path / f"{name}.py").write_text(text)
    options = ["--strict", "--config-file=", "--cache-dir=/dev/null", f"--python-executable={python}"]
    command = [sys.executable, "-m", "mypy", *options, *(f"{name}.py" for name in programs)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    mistake, total = done.stdout.splitlines()
    assert re.match(r"mistyped\.py:4: error: Argument 2 .*\[arg-type\]", mistake), done.stdout
    assert total == "Found 1 error in 1 file (checked 5 source files)"


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_readme_snippets_run(python: Path, service: Service, tmp_path: Path, snippet: str) -> None:
    shutil.copy(RECORDING, tmp_path / "street.flac")
    samples, _ = soundfile.read(RECORDING, dtype="int16")
    (tmp_path / "street.pcm").write_bytes(samples.tobytes())
    microphone = tmp_path / "arecord"
    microphone.write_text("#!/bin/sh\nexec cat street.pcm\n")
    microphone.chmod(0o755)
    program = snippet.replace("http://127.0.0.1:8000", service.url)
    assert program != snippet
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    output = run(python, "-c", program, cwd=tmp_path, EARSHOT_PROJECT_KEY=service.key, PATH=path)
    assert "'Appliance_alarm'" in output
    assert "failed" not in output
