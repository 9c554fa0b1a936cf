"""The wheels of `make build`: their content, and the server's start in a separate environment."""

import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from infra.examples import RECORDING
from tests.conftest import ROOT
from tests.contract.api import Api, tone
from tests.contract.test_live import live
from tests.ports import free_port
from tests.process import KEY
from tests.supply.lock import UV
from tests.supply.test_supply import WITH_UV
from tests.waiting import wait_for

pytestmark = [pytest.mark.slow, WITH_UV]
#: Files that belong in no wheel: pages about the code, build files, tests, types for checks of scripts.
NO_PART = re.compile(r"\.md$|\.d\.mts$|pyproject\.toml$|pom\.xml$|decisions|^tests/|^benchmarks/|^docs/|^infra/deploy/")
#: It names the authors of the recordings beside it.
AUTHORS = "infra/examples/README.md"
SNIPPETS = re.findall(r"```python\n(.*?)```", (ROOT / "app/client/README.md").read_text(), re.DOTALL)
TYPED = """
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from earshot_client import AsyncClient, Client, Event, JobResult, SocketEvent

client = Client("http://127.0.0.1:8000", "key")
events: Iterator[Event] = client.detect(Path("a.wav"), timeout=1.5)
result: JobResult = client.job_result("j")


async def events_of(client: AsyncClient) -> AsyncIterator[Event]:
    status = await client.session_status("s")
    for event in status.page.events:
        yield event


def seconds(event: SocketEvent) -> float:
    return event.end - event.start if event.kind == "sound.ended" else 0.0
"""
MISTYPED = """
from earshot_client import Client

Client("http://127.0.0.1:8000", "key").put_chunk("s", "0", b"")
"""


def uv(*arguments: str | Path) -> str:
    """Run uv from its cache, or with the index if that fails."""
    for offline in (["--offline"], []):
        done = subprocess.run([UV, *offline, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=300)
        if done.returncode == 0:
            return done.stdout
    raise AssertionError(done.stderr)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    out = tmp_path_factory.mktemp("dist")
    uv("build", "-q", "--wheel", "--all-packages", "--no-build-isolation", "--python", sys.executable, "--out-dir", out)
    return {path.name.partition("-")[0]: path for path in out.glob("*.whl")}


@pytest.fixture(scope="module")
def programs(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The programs of an environment with the server and its dependencies, without extras."""
    home = tmp_path_factory.mktemp("environment")
    needed = home / "requirements.txt"
    uv("export", "-q", "--locked", "--no-dev", "--no-emit-workspace", "-o", needed)
    uv("venv", "-q", "--python", sys.executable, home / "venv")
    python = home / "venv" / "bin" / "python"
    uv("pip", "install", "-q", "--python", python, "-r", needed)
    uv("pip", "install", "-q", "--no-deps", "--python", python, wheels["earshot_server"], wheels["earshot_client"])
    yield python.parent
    shutil.rmtree(home)


def files(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as pack:
        return {name for name in pack.namelist() if ".dist-info/" not in name}


def test_each_file_is_in_one_wheel(wheels: dict[str, Path]) -> None:
    server, client, lab = (files(wheels[f"earshot_{name}"]) for name in ("server", "client", "lab"))
    assert len(wheels) == 3
    assert {name.partition("/")[0] for name in server} == {"app", "infra", "streams", "topics"}
    assert {name.partition("/")[0] for name in client} == {"earshot_client"}
    assert {name.partition("/")[0] for name in lab} == {"infra"}
    assert all(name.startswith("infra/lab/") for name in lab)
    assert not any(name.startswith(("infra/lab/", "app/client/")) for name in server)
    assert [name for name in (*server, *client, *lab) if NO_PART.search(name)] == [AUTHORS]


def test_every_tracked_file_is_in_a_wheel(wheels: dict[str, Path]) -> None:
    packed = set().union(*map(files, wheels.values()))
    listed = subprocess.run(["git", "ls-files", "app", "infra", "streams", "topics"], cwd=ROOT, capture_output=True)
    assert listed.returncode == 0, listed.stderr
    tracked = [name for name in listed.stdout.decode().splitlines() if (ROOT / name).exists()]
    missing = {name.removeprefix("app/client/") for name in tracked if not NO_PART.search(name)} - packed
    assert missing == {"LICENSE", "infra/lab/LICENSE"}, "they are in the metadata of the wheels"
    for wheel in wheels.values():
        with zipfile.ZipFile(wheel) as pack:
            (licence,) = (name for name in pack.namelist() if name.endswith(".dist-info/licenses/LICENSE"))
            assert pack.read(licence) == (ROOT / "LICENSE").read_bytes()


def test_package_is_typed(programs: Path, tmp_path: Path) -> None:
    texts = {"mistyped": MISTYPED, "typed": TYPED, **{f"readme{n}": text for n, text in enumerate(SNIPPETS)}}
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    options = ["--strict", "--config-file=", "--cache-dir=/dev/null", f"--python-executable={programs / 'python'}"]
    command = [sys.executable, "-m", "mypy", *options, *(f"{name}.py" for name in texts)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    mistake, total = done.stdout.splitlines()
    assert re.match(r"mistyped\.py:4: error: Argument 2 .*\[arg-type\]", mistake), done.stdout
    assert total == "Found 1 error in 1 file (checked 5 source files)"


def test_server_runs_without_extras(programs: Path, wheels: dict[str, Path], tmp_path: Path) -> None:
    port = free_port()
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "EARSHOT_DATA": str(tmp_path / "data"),
        "EARSHOT_PORT": str(port),
        "EARSHOT_BOOTSTRAP_PROJECT_KEY": KEY,
        "EARSHOT_PROJECT_KEY": KEY,
    }

    def earshot(*words: str | Path) -> subprocess.CompletedProcess[str]:
        command = [programs / "earshot", *words]
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)

    log = tmp_path / "log"
    serve: list[str | Path] = [programs / "earshot", "serve"]
    with log.open("wb") as file:
        service = subprocess.Popen(serve, env=environment, cwd=tmp_path, stdout=file, stderr=file)
    try:
        wait_for(lambda: b"Earshot is listening" in log.read_bytes() or service.poll() is not None, 120)
        heard = earshot("detect", RECORDING)
        assert "Fire_smoke_alarm" in heard.stdout, heard.stderr + log.read_text()
        # A confined worker cannot import anything: it must not need a package that only tests install.
        with Api(SimpleNamespace(url=f"http://127.0.0.1:{port}", key=KEY)) as api, live(api, api.create()) as events:
            _, _, session = next(events)
            for number in range(2):
                api.put(session["session_id"], number, tone(0.5))
            _, _, window = next(events)
            assert window["strip"]["columns"], window
    finally:
        service.terminate()
        assert service.wait(60) == 0
    assert earshot("models", "use", "yamnet-ced").stdout.startswith("in_use  yamnet-ced@")
    refused = earshot("explore", RECORDING)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.splitlines()[-1].endswith("NAME=lab in a checkout, or the wheels of make build with [lab]")
    for setting, value, extra in (
        ("BROKER", "kafka://127.0.0.1:1", "kafka"),
        ("DATABASE_URL", "postgresql://127.0.0.1:1/none", "postgres"),
    ):
        environment[f"EARSHOT_{setting}"] = value
        refused = earshot("serve")
        assert refused.returncode != 0
        assert f"the wheels of make build with [{extra}]" in refused.stderr.splitlines()[-1]
        assert "Traceback" not in refused.stderr
        del environment[f"EARSHOT_{setting}"]
    uv("pip", "install", "-q", "--no-deps", "--python", programs / "python", wheels["earshot_lab"])
    explored = earshot("explore", RECORDING)
    assert "Fire_smoke_alarm" in explored.stdout, explored.stderr
