"""A call ends with a timeout error, whatever the service does."""

import asyncio
import io
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from earshot_client import AsyncClient, Client, DeadlineExceeded, SessionOptions, _deadline
from tests.contract.api import tone, wav
from tests.unit.app.client.conftest import Shell
from tests.unit.app.client.edge import RESULTS, Edge
from tests.unit.app.conftest import KEY, House
from tests.unit.app.double import TAGS
from topics.errors import Unavailable

pytestmark = pytest.mark.slow

TIMEOUT = 0.3
#: Far below the 30 s request timeout, far above the delays of a busy machine.
LATE = 25.0

SILENT, DRIPPING, PINGING = b"", b" ", b": ping\n\n"
RECORDING = bytes(64 << 20)


@contextmanager
def ends_in_time() -> Iterator[None]:
    start = time.monotonic()
    with pytest.raises(DeadlineExceeded, match=r"^not done within 0\.3 s"):
        yield
    assert TIMEOUT <= time.monotonic() - start < LATE


CALLS: dict[str, tuple[bytes, Callable[[Client], object]]] = {
    "silent": (SILENT, lambda client: client.session_status("s", timeout=TIMEOUT)),
    "dripping": (DRIPPING, lambda client: client.session_status("s", timeout=TIMEOUT)),
    "dripping, not repeatable": (DRIPPING, lambda client: client.delete_speaker("Anna", timeout=TIMEOUT)),
    "dripping events": (DRIPPING, lambda client: list(client.session_events("s", timeout=TIMEOUT))),
    "silent job": (SILENT, lambda client: client.job_result("j", timeout=TIMEOUT)),
    "pinging job": (PINGING, lambda client: client.job_result("j", timeout=TIMEOUT)),
    "upload": (SILENT, lambda client: client.analyze_file(io.BytesIO(RECORDING), timeout=TIMEOUT)),
    "upload, not repeatable": (SILENT, lambda client: client.add_voice("A", io.BytesIO(RECORDING), timeout=TIMEOUT)),
}


@pytest.mark.parametrize(("sent", "call"), CALLS.values(), ids=CALLS)
def test_calls_end_within_timeout(edge: Edge, sent: bytes, call: Callable[[Client], object], unhurried: Shell) -> None:
    edge.faults.append(sent)
    with unhurried(edge.url) as client, ends_in_time():
        call(client)


def test_timeout_shortens_retry_pauses(edge: Edge, house: House, unhurried: Shell) -> None:
    edge.faults.append(Unavailable("busy", retry_after=30))
    with unhurried(edge.url, KEY) as client, ends_in_time():
        client.analyze_file(io.BytesIO(b"x"), timeout=TIMEOUT)
    assert not house.jobs.jobs


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock for deadlines, which tests advance."""
    now = [0.0]
    monkeypatch.setattr(_deadline, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_timeout_error_names_cause(unhurried: Shell, now: list[float]) -> None:
    """The time passes in the pause after the first try, which has failed."""

    def pause(seconds: float) -> None:
        now[0] = LATE

    async def pause_on_loop(seconds: float) -> None:
        pause(seconds)

    with (
        unhurried("http://127.0.0.1:9", sleep=pause if unhurried == Client else pause_on_loop) as client,
        pytest.raises(DeadlineExceeded, match=r"s: .*(refused|failed)"),
    ):
        client.official_tags(timeout=LATE)


def test_broken_stream_is_not_resumed_after_deadline(edge: Edge, now: list[float]) -> None:
    edge.results = RESULTS
    edge.faults.extend([None, 4, 4])
    with Client(edge.url, KEY, sleep=lambda seconds: now.__setitem__(0, LATE)) as client:
        events = client.job_events(client.analyze_file(io.BytesIO(b"x")).id, timeout=LATE)
        assert next(events).kind == "partial_result"
        with pytest.raises(DeadlineExceeded):
            next(events)


def test_time_in_caller_counts_toward_timeout(url: str, now: list[float]) -> None:
    with Client(url, KEY) as client:
        session = client.create_session(SessionOptions("stream", "audio/x-raw; rate=16000; format=s16le"))
        client.put_chunk(session.id, 0, tone(1.5))
        events = client.session_events(session.id, timeout=LATE)
        assert [next(events).start, next(events).start] == [0.0, 0.5], "all so far"
        now[0] += LATE
        with pytest.raises(DeadlineExceeded):
            next(events)


@pytest.mark.parametrize("timeout", [LATE, math.inf])
def test_fast_calls_succeed(url: str, unhurried: Shell, timeout: float) -> None:
    with unhurried(url, KEY) as client:
        assert len(list(client.detect(wav(tone(3.0)), timeout=timeout))) == 5
        assert client.official_tags(timeout=timeout) == TAGS


def test_time_that_is_not_a_number_raises(unhurried: Shell) -> None:
    with unhurried("http://127.0.0.1:9", KEY) as client:
        for call in (
            lambda: client.official_tags(timeout=math.nan),
            lambda: list(client.session_events("s", timeout=math.nan)),
            lambda: list(client.live("s", timeout=math.nan)),
            lambda: client.socket(timeout=math.nan),
            lambda: client.socket(patience=math.nan),
        ):
            with pytest.raises(ValueError, match="not a number"):
                call()


async def test_caller_timeout_is_not_converted(edge: Edge) -> None:
    edge.faults.append(SILENT)
    async with AsyncClient(edge.url) as client:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(TIMEOUT):
                await client.session_status("s", timeout=LATE)
