"""The image: built by buildah on a root file system of Debian's packages, and run by runc on a read-only root.

`make image-test` runs this; it takes minutes, and needs root, the network, buildah, mmdebstrap and runc.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from tests.conftest import ROOT
from tests.lengths import length
from tests.ports import free_port
from tests.process import ask
from tests.waiting import wait_for

TOOLS: Final = ("buildah", "mmdebstrap", "runc")
PACKAGES: Final = "python3,python3-venv,ca-certificates,binutils"
IMAGE: Final = "localhost/earshot-test"
#: Of the image besides its base, in bytes.
MOST_BYTES: Final = 800_000_000
READY_SECONDS: Final = 60
METRICS: Final = (
    "import os, urllib.request as r; "
    "print(r.urlopen(f'http://127.0.0.1:{os.environ[\"EARSHOT_PORT\"]}/metrics').read().decode())"
)
#: Files by which the build finds packages as this machine does.
HOST_FILES: Final = ("/etc/pip.conf", "/etc/ssl")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not length("IMAGE", 0), reason="`make image-test` builds and runs the image"),
]


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Images and containers of this test alone."""
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        pytest.fail(f"missing: {', '.join(missing)}")
    place = tmp_path_factory.mktemp("containers")
    settings = place / "storage.conf"
    settings.write_text(f'[storage]\ndriver = "overlay"\nrunroot = "{place}/run"\ngraphroot = "{place}/graph"\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTAINERS_STORAGE_CONF", str(settings))
        yield
        done("buildah", "rm", "--all")
        done("buildah", "rmi", "--all", "--force")


@pytest.fixture(scope="module")
def image(storage: None, tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("base") / "root.tar"
    done("mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(root))
    base = done("buildah", "from", "scratch")
    done("buildah", "add", base, str(root), "/")
    done("buildah", "commit", "--rm", base, "localhost/base")
    mounts = [f"--volume={file}:{file}:ro" for file in HOST_FILES if Path(file).exists()]
    arguments = [f"--build-arg={name}=localhost/base" for name in ("BASE", "BUILD_BASE")]
    command = (
        "buildah",
        "bud",
        "--isolation=chroot",
        "--network=host",
        "--format=docker",
        "--build-arg=TARGETARCH=amd64",
    )
    done(*command, *arguments, *mounts, "-f", "infra/deploy/Containerfile", "-t", IMAGE, ".")
    return IMAGE


def done(*command: str) -> str:
    """Run a command in the project's directory, and return its output."""
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, f"{' '.join(command)}: {ran.stderr[-2000:]}"
    return ran.stdout.strip()


def inspected(image: str) -> dict[str, Any]:
    config: dict[str, Any] = json.loads(done("buildah", "inspect", "--type", "image", image))
    return config


@contextmanager
def running(image: str, place: Path, user: int, **resources: Any) -> Iterator[str]:
    """Run the image's command as a user on a read-only root, and yield the container's name; stop it by SIGTERM."""
    config = inspected(image)["Docker"]["config"]
    port, data, name = free_port(), place / "data", f"earshot-test-{os.getpid()}"
    data.mkdir(mode=0o700, exist_ok=True)
    os.chown(data, user, user)
    container = done("buildah", "from", image)
    done("runc", "spec", "--bundle", str(place))
    spec = json.loads((place / "config.json").read_text())
    spec["root"] = {"path": done("buildah", "mount", container), "readonly": True}
    spec["process"] |= {
        "terminal": False,
        "user": {"uid": user, "gid": user},
        "args": [*config["Entrypoint"], *config["Cmd"]],
        "env": [*config["Env"], f"EARSHOT_PORT={port}"],
    }
    for mount in spec["mounts"]:
        if mount["destination"] == "/dev/shm":
            assert "size=65536k" in mount["options"]
    spec["mounts"].append({"destination": "/data", "type": "bind", "source": str(data), "options": ["bind", "rw"]})
    spec["linux"]["namespaces"] = [one for one in spec["linux"]["namespaces"] if one["type"] != "network"]
    spec["linux"]["resources"] = resources
    (place / "config.json").write_text(json.dumps(spec))
    with ExitStack() as stack:
        stack.callback(done, "buildah", "rm", container)
        log = stack.enter_context((place / "log").open("wb"))
        process = subprocess.Popen(["runc", "run", "--bundle", str(place), name], stdout=log, stderr=log)
        try:
            wait_for(lambda: process.poll() is not None or is_ready(port), READY_SECONDS)
            assert process.poll() is None, (place / "log").read_text()
            yield name
            done("runc", "kill", name, "TERM")
            assert process.wait(60) == 0, "the first process of the container takes the signal"
        finally:
            subprocess.run(["runc", "delete", "--force", name], capture_output=True)
            process.wait(60)


def is_ready(port: int) -> bool:
    with suppress(httpx2.TransportError):
        return ask("GET", f"http://127.0.0.1:{port}/readyz").status_code == 200
    return False


@pytest.mark.parametrize("user", [10001, 54321])
def test_image_serves_on_a_read_only_root_as_any_user(image: str, user: int, tmp_path: Path) -> None:
    with running(image, tmp_path, user) as name:
        check = inspected(image)["Docker"]["config"]["Healthcheck"]["Test"]
        done("runc", "exec", name, *check[1:])
        if user == 10001:
            key = json.loads(done("runc", "exec", name, "earshot", "key", "rotate", "demo", "--yes", "--json"))["key"]
            recording = done("runc", "exec", name, "python", "-c", "import infra.examples as e; print(e.RECORDING)")
            told = done("runc", "exec", "-e", f"EARSHOT_PROJECT_KEY={key}", name, "earshot", "analyze", recording)
            assert "no words" in told, "the engine of speech has all that it needs"
            assert "Fire_smoke_alarm" in told
    log = (tmp_path / "log").read_text()
    ready = next(json.loads(line) for line in log.splitlines() if '"service.ready"' in line)
    print(f"ready after {ready['seconds']} s")
    assert any((tmp_path / "data/cache/kernels").rglob("*.nbc"))


def test_workers_follow_the_quota_of_processors(image: str, tmp_path: Path) -> None:
    with running(image, tmp_path, 10001, cpu={"quota": 100_000, "period": 100_000}) as name:
        told = done("runc", "exec", name, "python", "-c", METRICS)
    assert "\nearshot_workers 1.0\n" in told


def test_image_is_small(image: str) -> None:
    container = done("buildah", "from", image)
    (size,) = done("du", "-sxB1", f"{done('buildah', 'mount', container)}/opt/earshot").split()[:1]
    done("buildah", "rm", container)
    print(f"{int(size) / 1e6:.0f} MB besides its base")
    assert int(size) < MOST_BYTES
