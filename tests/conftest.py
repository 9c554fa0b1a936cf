"""Shared by all tests: a clean environment, and the running service on both logs."""

import asyncio
import gc
import inspect
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import httpcore2
import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.groups import durations, group
from tests.kafka.broker import end_shared_broker, kafka_broker
from tests.process import ADMIN_KEY, KEY, ORG_KEY, ServiceProcess
from tests.stub_engines import StubEngines

pytest_plugins = ["tests.contract.accounting"]

ROOT = Path(__file__).parent.parent

ENGINE_KEY = "sk-key-of-the-speech-engine"

#: Unique numbers for objects that tests create in a shared service.
NUMBERS = itertools.count()

BOTH_LOGS = ["embedded", pytest.param("kafka", marks=pytest.mark.kafka)]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the longest groups first, then files with slow tests, so that no worker ends with one."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (-durations().get(group(item.nodeid), 0.0), item.path not in slow))


def pytest_collection_finish() -> None:
    """Freeze collected tests, so that garbage collections need not scan thousands of them."""
    gc.collect()
    gc.freeze()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test on the embedded log, and also on Kafka if it is marked `both_logs`: its result may vary."""
    if ROOT / "tests" / "unit" in metafunc.definition.path.parents:
        return
    logs = BOTH_LOGS if metafunc.definition.get_closest_marker("both_logs") else BOTH_LOGS[:1]
    if "service" in metafunc.fixturenames:
        metafunc.parametrize("service", logs, indirect=True, scope="session")


class Groups(LoadScopeScheduling):
    """Keeps the tests of a group in one process.

    pytest-xdist's own groups have no effect under pytest 9: it stores them in an attribute that nothing reads.
    """

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Groups | None:
    """Distribute tests by these groups with `--dist loadgroup`."""
    return Groups(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.fixture
def loop() -> Iterator[asyncio.Runner]:
    """Yield the event loop of coroutine tests, for fixtures that set up or tear down on it."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    runner = pyfuncitem.funcargs.get("loop")
    (runner.run if isinstance(runner, asyncio.Runner) else asyncio.run)(pyfuncitem.obj(**given))
    return True


def pytest_unconfigure() -> None:
    end_shared_broker()


@pytest.fixture(scope="session", autouse=True)
def certificates_read_once() -> Iterator[None]:
    """They take 30 ms per HTTP client, and so per request without a client, of which a start makes twenty a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpcore2, "default_ssl_context", cache(httpcore2.default_ssl_context))
        yield


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("EARSHOT_") and not name.startswith("EARSHOT_TEST_"):
            monkeypatch.delenv(name)


@contextmanager
def own_log(log: str, session_seconds: int = 15) -> Iterator[dict[str, str]]:
    """Yield the settings of a service on an unshared log; services on one Kafka would be nodes of one service.

    Tests that kill nodes finish sooner if brokers expire nodes after `lengths.SESSION_SECONDS`.
    """
    if log == "embedded":
        yield {}
        return
    with kafka_broker() as broker:
        yield {**broker.settings, "partitions": "4", "kafka_session_seconds": str(session_seconds)}


@pytest.fixture(scope="session")
def engines() -> Iterator[StubEngines]:
    """The engines of `service`; users of this fixture reset the faults that tests set."""
    with StubEngines() as stub:
        yield stub


@pytest.fixture(scope="session")
def service(
    request: pytest.FixtureRequest, engines: StubEngines, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServiceProcess]:
    """The service as a separate process, on each log."""
    data = tmp_path_factory.mktemp(f"service-{request.param}") / "data"
    # The service waits for engines that hang; the speaker engine works at the machine's speed.
    patience = {"speech_timeout": "9", "caption_timeout": "9", "translation_timeout": "9", "speaker_timeout": "120"}
    with own_log(request.param) as settings:
        more = {**settings, **engines.settings, **patience}
        with ServiceProcess(data, **more, speech_key=ENGINE_KEY, keep_voice="true") as process:
            yield process
    log = process.log.read_text()
    assert "Traceback" not in log
    assert not [secret for secret in (KEY, ORG_KEY, ADMIN_KEY, ENGINE_KEY) if secret in log]


@pytest.fixture
def poor_key(service: ServiceProcess) -> str:
    """The key of a project with one unused free second a month."""
    name = f"poor-{next(NUMBERS)}"
    key = service.project(name)
    service.operate("PUT", f"/projects/{name}/plan", json={"free_seconds": 1})
    return key
