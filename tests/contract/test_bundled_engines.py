"""Jobs with the engines that are started by themselves: offline, through their death, and behind a proxy that lies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import psutil
import pytest

from tests.contract.jobs import SOUND, SPEECH, Jobs
from tests.contract.speech import spoken
from tests.process import ServiceProcess
from tests.stub_engines import CHAT, TRANSLATE, StubEngines
from tests.stub_engines import SPEECH as SPEECH_PATH
from tests.waiting import wait_for

pytestmark = pytest.mark.slow

EVERYTHING = {**SOUND, **SPEECH, "audio_insights": True, "caption": True, "translation": True}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """The service as `make run` starts it."""
    process = ServiceProcess(tmp_path_factory.mktemp("alone") / "data", bundled_engines="true")
    yield process.start()
    assert process.stop() == 0, process.tail()


@pytest.fixture
def offline(alone: ServiceProcess) -> Iterator[Jobs]:
    """The job interface of that service."""
    with Jobs(alone) as jobs:
        yield jobs


def child(service: ServiceProcess) -> psutil.Process:
    """Return the process of the bundled engines, which may come after the service is ready."""
    assert service.process is not None
    parent = psutil.Process(service.process.pid)
    return wait_for(lambda: next(filter(serves_engines, parent.children()), None))


def serves_engines(process: psutil.Process) -> bool:
    """Tell whether a process, which may be about to end, is that of the engines."""
    try:
        return "infra.engines" in process.cmdline()
    except psutil.NoSuchProcess:
        return False


def test_every_service_answers_offline(offline: Jobs) -> None:
    result = offline.result(spoken(), EVERYTHING)
    status = {name: entry["status"] for name, entry in result.items() if name != "metadata"}
    assert status.pop("translation") == "error"
    assert result["translation"]["error"] == "Translation API error: 501"
    assert set(status.values()) == {"success"}
    assert result["speech_analysis"]["results"][0]["transcript"]
    insights = result["audio_insights"]["result"]
    assert insights["contains_speech"] is True
    assert insights["situation_summary"] != result["caption"]["result"]["caption"]


def test_engines_that_are_killed_are_started_again(offline: Jobs, alone: ServiceProcess) -> None:
    offline.result(spoken(2), SPEECH)
    killed = child(alone)
    killed.kill()
    entry = offline.result(spoken(2), SPEECH)["speech_analysis"]
    assert entry["status"] == "success", entry
    assert child(alone) != killed
    assert httpx2.get(f"{alone.url}/healthz").status_code == 200


@pytest.fixture(scope="module")
def proxied(alone: ServiceProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[StubEngines, Jobs]]:
    """A service whose engines are the bundled ones of the other, behind a proxy."""
    listening = child(alone).net_connections()
    port = next(one.laddr.port for one in listening if one.status == psutil.CONN_LISTEN)
    with StubEngines(f"http://127.0.0.1:{port}") as proxy:
        data: Path = tmp_path_factory.mktemp("proxied") / "data"
        process = ServiceProcess(data, **proxy.settings, speech_timeout="10", caption_timeout="3")
        with Jobs(process.start()) as jobs:
            yield proxy, jobs
        process.stop()


@pytest.mark.parametrize("fault", [500, 301, "hang", "cut", "wrong"])
def test_a_fault_on_the_way_is_told_and_passes(proxied: tuple[StubEngines, Jobs], fault: int | str) -> None:
    proxy, jobs = proxied
    proxy.faults = {SPEECH_PATH: fault, CHAT: fault, TRANSLATE: fault}
    result = jobs.result(spoken(2), EVERYTHING)
    assert result["sound_event_detection"]["status"] == "success"
    for name, engine in (("speech_analysis", "ASR Engine"), ("audio_insights", "Caption"), ("caption", "Caption")):
        entry = result[name]
        assert entry["status"] == "error"
        assert entry["error"] == f"{engine} API error: {fault}" if isinstance(fault, int) else entry["error"]
    proxy.heal()
    assert jobs.result(spoken(2), SPEECH)["speech_analysis"]["status"] == "success"
