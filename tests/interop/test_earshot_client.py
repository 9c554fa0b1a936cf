"""The distribution earshot-client: built, installed alone, and used as its README describes."""

import json
import os
import re
import resource
import shutil
import statistics
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
#: Processor time of an import relative to that of asyncio and ssl, both without Python's own.
IMPORT_LIMIT: Final = 2.5

#: Every distribution of the environment, and the dependencies of earshot-client.
DISTRIBUTIONS: Final = """
import json, re
from importlib.metadata import distributions

needs = {
    distribution.name: [
        re.match(r"[\\w.-]+", line)[0] for line in distribution.requires or () if "extra ==" not in line
    ]
    for distribution in distributions()
}
needed, queue = set(), ["earshot-client"]
while queue:
    name = queue.pop()
    if name in needs and name not in needed:
        needed.add(name)
        queue += needs[name]
print(json.dumps([sorted(needs), sorted(needed), sorted(needs["earshot-client"])]))
"""
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


def test_only_required_packages_are_installed(python: Path, capsys: pytest.CaptureFixture[str]) -> None:
    installed, needed, direct = json.loads(run(python, "-c", DISTRIBUTIONS))
    assert set(installed) - {"pip", "setuptools"} == set(needed), "an environment that uv did not make has them"
    assert direct == ["anyio", "httpx2", "msgspec", "websockets"]
    folder = Path(run(python, "-c", "import earshot_client; print(earshot_client.__path__[0])").strip())
    size = sum(file.stat().st_size for file in folder.parent.rglob("*") if "__pycache__" not in file.parts)
    own = sum(file.stat().st_size for file in folder.glob("*.*"))
    with capsys.disabled():
        print(f"\nearshot-client: {own / 1e3:.0f} kB, with {', '.join(installed)}: {size / 1e6:.1f} MB")


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


def test_import_is_fast(python: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def milliseconds(statement: str) -> float:
        def once() -> float:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            run(python, "-c", statement)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            return (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime) * 1000

        once()  # writes the bytecode
        return statistics.median(once() for _ in range(5))

    alone = milliseconds("pass")
    base = milliseconds("import asyncio, ssl") - alone
    package = milliseconds("import earshot_client") - alone
    client = milliseconds("import earshot_client; earshot_client.Client('http://127.0.0.1:8000')") - alone
    with capsys.disabled():
        print(f"\nimport earshot_client: {package:.0f} ms of processor time, with a first client {client:.0f} ms")
    assert package <= IMPORT_LIMIT * base


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
