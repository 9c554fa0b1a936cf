"""A call ends with a timeout error, whatever the service does."""

import asyncio
import io
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from earshot_client import AsyncClient, Client, DeadlineExceeded, SessionOptions, _deadline
from tests.contract.api import tone, wav
from tests.unit.app.client.conftest import Shell
from tests.unit.app.client.jobs_stub import JobStub, error, story
from tests.unit.app.client.slow_server import HEAD, PING, SPACE, slow_server
from tests.unit.app.client.stub import Stub
from tests.unit.app.conftest import KEY
from tests.unit.app.double import TAGS

pytestmark = pytest.mark.slow

TIMEOUT = 0.3
#: Far below the 30 s request timeout, far above the delays of a busy machine.
LATE = 10.0

SILENT = (b"", b"")
DRIPPING = (HEAD % b"application/json", SPACE)
PINGING = (HEAD % b"text/event-stream", PING)
RECORDING = bytes(64 << 20)


@contextmanager
def ends_in_time() -> Iterator[None]:
    start = time.monotonic()
    with pytest.raises(DeadlineExceeded, match=r"^not done within 0\.3 s"):
        yield
    assert TIMEOUT <= time.monotonic() - start < LATE


CALLS: dict[str, tuple[tuple[bytes, bytes], Callable[[Client], object]]] = {
    "silent": (SILENT, lambda client: client.session_status("s", timeout=TIMEOUT)),
    "dripping": (DRIPPING, lambda client: client.session_status("s", timeout=TIMEOUT)),
    "dripping, not repeatable": (DRIPPING, lambda client: client.delete_speaker("Anna", timeout=TIMEOUT)),
    "dripping events": (DRIPPING, lambda client: list(client.session_events("s", timeout=TIMEOUT))),
    "silent job": (SILENT, lambda client: client.job_result("j", timeout=TIMEOUT)),
    "pinging job": (PINGING, lambda client: client.job_result("j", timeout=TIMEOUT)),
    "upload": (SILENT, lambda client: client.analyze_file(io.BytesIO(RECORDING), timeout=TIMEOUT)),
    "upload, not repeatable": (SILENT, lambda client: client.add_voice("A", io.BytesIO(RECORDING), timeout=TIMEOUT)),
}


@pytest.mark.parametrize(("server", "call"), CALLS.values(), ids=CALLS)
def test_calls_end_within_timeout(
    server: tuple[bytes, bytes], call: Callable[[Client], object], unhurried: Shell
) -> None:
    with slow_server(*server) as url, unhurried(url) as client, ends_in_time():
        call(client)


def test_timeout_shortens_retry_pauses(jobs: JobStub, unhurried: Shell) -> None:
    busy = error(503, "busy")
    busy.headers["Retry-After"] = "30"
    jobs.refusals.append(busy)
    with unhurried(jobs.url, KEY) as client, ends_in_time():
        client.analyze_file(io.BytesIO(b"x"), timeout=TIMEOUT)
    assert not jobs.jobs


def test_timeout_error_names_cause(unhurried: Shell) -> None:
    with (
        unhurried("http://127.0.0.1:9") as client,
        pytest.raises(DeadlineExceeded, match=r"s: .*(refused|failed)"),
    ):
        client.official_tags(timeout=TIMEOUT)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock for deadlines, which tests advance."""
    now = [0.0]
    monkeypatch.setattr(_deadline, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_broken_stream_is_not_resumed_after_deadline(jobs: JobStub, now: list[float]) -> None:
    with Client(jobs.url, KEY, sleep=lambda seconds: now.__setitem__(0, LATE)) as client:
        job = client.analyze_file(io.BytesIO(b"x"))
        jobs.connections.extend([story(jobs.result)[0]] * 2)
        events = client.job_events(job.id, timeout=LATE)
        assert next(events).kind == "progress"
        with pytest.raises(DeadlineExceeded):
            next(events)


def test_time_in_caller_counts_toward_timeout(stub: Stub, now: list[float]) -> None:
    with Client(stub.url, KEY) as client:
        session = client.create_session(SessionOptions("stream", "audio/x-raw; rate=16000; format=s16le"))
        client.put_chunk(session.id, 0, tone(1.5))
        events = client.session_events(session.id, timeout=LATE)
        assert [next(events).start, next(events).start] == [0.0, 0.5], "all so far"
        now[0] += LATE
        with pytest.raises(DeadlineExceeded):
            next(events)


def test_fast_calls_succeed(stub: Stub, tmp_path: Path, unhurried: Shell) -> None:
    path = tmp_path / "street.wav"
    path.write_bytes(wav(tone(3.0)))
    with unhurried(stub.url, KEY) as client:
        assert len(list(client.detect(path, timeout=LATE))) == 5
        assert client.official_tags(timeout=LATE) == TAGS


async def test_caller_timeout_is_not_converted() -> None:
    with slow_server() as url:
        async with AsyncClient(url) as client:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(TIMEOUT):
                    await client.session_status("s", timeout=LATE)
