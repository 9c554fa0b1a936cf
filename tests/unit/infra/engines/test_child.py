"""The engine server as a child: restarted after a crash, ended with its parent."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from infra.engines import serving
from infra.engines.child import EngineServer
from infra.engines.speech.speech_models import SpeechSettings
from streams.folding import retry
from tests.waiting import until, wait_for
from topics.errors import EarshotError

pytestmark = pytest.mark.slow

PARENT = """
import asyncio
import sys
from pathlib import Path
from infra.engines.child import EngineServer
from infra.engines.speech.speech_models import SpeechSettings

async def main():
    engines = EngineServer("info", "json", Path(sys.argv[1]), SpeechSettings())
    await engines.start()
    while engines.pid is None:
        await asyncio.sleep(0.01)
    print(engines.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
def engines(loop: asyncio.Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineServer]:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of the voices")
    monkeypatch.setattr(retry, "FIRST_SECONDS", 0.05)
    made = EngineServer("error", "json", tmp_path, SpeechSettings())
    loop.run(made.start())
    yield made
    loop.run(made.stop())
    assert made.pid is None


async def test_killed_child_is_replaced_before_next_request(engines: EngineServer, tmp_path: Path) -> None:
    """Open connections to the dead child are not reused."""
    async with httpx2.AsyncClient(base_url=engines.url, timeout=120) as client:
        answers, first = [await client.get("/healthz")], engines.pid
        (tmp_path / "left").mkdir()
        assert first is not None
        # A signal to this process's group does not reach it. When memory runs out, the kernel kills it first.
        assert (os.getpgid(first), Path(f"/proc/{first}/oom_score_adj").read_text()) == (first, "1000\n")
        os.kill(first, signal.SIGKILL)
        await until(lambda: engines.pid != first)
        answers.append(await client.get("/healthz"))
    assert [(answer.status_code, answer.headers.get("connection")) for answer in answers] == [(200, None)] * 2
    assert engines.pid not in (None, first)
    await engines.stop()
    assert list(tmp_path.iterdir()) == []


async def test_child_requires_key_and_hides_it(engines: EngineServer) -> None:
    """Other users of the machine, and pages in their browsers, reach its port too."""
    async with httpx2.AsyncClient(base_url=engines.url, timeout=120) as client:
        keyed = {"Authorization": f"Bearer {engines.key}"}
        statuses = [(await client.get("/v1/models", headers=headers)).status_code for headers in ({}, keyed)]
    assert statuses == [401, 200]
    told = [Path(f"/proc/{engines.pid}/{name}").read_bytes().split(b"\0") for name in ("environ", "cmdline")]
    names = {entry.partition(b"=")[0] for entry in told[0] if entry}
    assert names <= {b"PATH", b"LD_LIBRARY_PATH", b"PYTHONPATH", b"TMPDIR", b"NUMBA_CACHE_DIR", b"OPENBLAS_NUM_THREADS"}
    assert engines.key.encode() not in b" ".join(told[0] + told[1])


def test_child_ends_when_parent_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
    wait_for(lambda: not alive(child))


def alive(pid: int) -> bool:
    try:
        # Without a parent its end may go unreaped: then it is a zombie.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_taken_address_is_reported() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(EarshotError, match=r"^cannot listen at 127\.0\.0\.1: Address already in use"),
    ):
        serving.listen("127.0.0.1", taken.getsockname()[1])
