"""The live view in a browser: over a hundred microphones on one screen, and the cost of a listener to the service."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec
import psutil
import soundfile

from benchmarks import audio, processes, procfs
from benchmarks.cases.setup import Setup, running_service
from benchmarks.measures import Row, Sample, ratio_row, value_row
from benchmarks.plans import PacedPlan

if TYPE_CHECKING:
    from playwright.sync_api import Page

#: Two windows a second each: slightly more than two hundred, since start and end take time.
STREAMS: Final = 110
SECONDS: Final = 30
BAR_CORES: Final = 0.5
#: Speech and a barking dog: every window has something to report.
RECORDING: Final = processes.ROOT / "infra" / "examples" / "door.ogg"
#: Seconds until everything sent is on the screen.
SETTLE_SECONDS: Final = 2.0
_COUNTED: Final = re.compile(r"(\d+) windows .* with (\d+) reports")


def measure(setup: Setup) -> Iterator[Row]:
    """Yield the cores of the browser, the share of reports it shows, and windows per CPU with and without it."""
    seconds = setup.size(SECONDS, 5)
    cores, shares, pairs = [], [], []
    with running_service() as (server, directory):
        samples, rate = soundfile.read(RECORDING, dtype="int16")
        assert rate == audio.RATE
        pcm = directory / "door.pcm"
        pcm.write_bytes(samples.tobytes())
        plan = PacedPlan(server.target(), STREAMS, float(seconds), str(pcm))
        with live_view(server.url) as (page, browser):
            for _ in range(setup.pairs):
                page.goto(f"{server.url}/dashboard/#/live")
                page.reload()
                page.locator("#counted").wait_for()
                before = procfs.cpu_seconds([browser])
                watched = processes.run_load(plan)
                cores.append((procfs.cpu_seconds([browser]) - before) / watched.seconds)
                time.sleep(SETTLE_SECONDS)
                shares.append(_share(page, server.port, watched))
                page.goto("about:blank")
                pairs.append((watched, processes.run_load(plan)))
    beside = {"windows/s": pairs[0][0].per_second}
    yield value_row(f"live view of {STREAMS} streams, browser", cores, "cores", BAR_CORES, beside)
    yield Row("reports on the screen, of those stored", min(shares), min(shares), max(shares), bar=1.0)
    yield ratio_row("windows with a listener, over none", pairs, "windows", other="unheard")


@contextmanager
def live_view(url: str) -> Iterator[tuple[Page, int]]:
    """Open a signed-in browser; yield its page and its root process."""
    with processes.chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(f"{url}/dashboard/#/models")
        page.evaluate("key => sessionStorage.setItem('earshot.project', key)", processes.KEY)
        children = psutil.Process().children(recursive=True)
        yield page, min(one.pid for one in children if one.name().startswith("chrom"))


def _share(page: Page, port: int, sample: Sample) -> float:
    """Return the share of stored windows or reports that the page counted, whichever is less.

    Raises:
        BenchmarkError: It counted more.
    """
    found = _COUNTED.match(page.locator("#counted").inner_text())
    assert found is not None
    windows, reports = _stored(port)
    shares = int(found[1]) / windows, int(found[2]) / max(1, reports)
    if max(shares) > 1 or windows < sample.done:
        raise processes.BenchmarkError(f"{found[0]}, and {windows} with {reports} are stored")
    return min(shares)


def _stored(port: int) -> tuple[int, int]:
    """Return the numbers of windows and reports of the newest sessions, as many as one run makes."""
    page = _get(port, f"/audio_sessions/?count={STREAMS}")
    windows = reports = 0
    for session in page["sessions"]:
        events = _get(port, f"/audio_sessions/{session['session_id']}/status")["inference"]["results"]
        windows += len(events)
        reports += sum(tag["name"] != "Others" for event in events for tag in event["tags"])
    return windows, reports


def _get(port: int, path: str) -> Any:
    return msgspec.json.decode(processes.get(port, path, processes.KEY))
