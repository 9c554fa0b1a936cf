"""The browser's work to show the result of an hour in the dashboard."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import msgspec
import psutil

from benchmarks import long_job, processes, procfs
from benchmarks.cases.setup import Setup
from benchmarks.measures import Row, value_row

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

HOUR: Final = 3600
RESULT_MS_BAR: Final = 1000.0
TAB_MB_BAR: Final = 200.0
GIVE_UP_SECONDS: Final = 60
MB: Final = 1e6
#: Records when each element first appears, in milliseconds since the page was requested.
WATCH: Final = """(() => {
  const due = %s;
  new MutationObserver(() => {
    for (const [name, test] of Object.entries(due))
      if (!(name in window.there) && test()) requestAnimationFrame(() => { window.there[name] = performance.now(); });
  }).observe(document, { childList: true, subtree: true, attributes: true });
  window.there = {};
})()"""


class Dashboard(msgspec.Struct):
    """A service, an hour-long job in it, and a browser."""

    server: processes.ServerProcess
    browser: Browser
    job: str
    setup: Setup

    @contextmanager
    def tab(self, view: str, **due: str) -> Iterator[Page]:
        """Open a view with an empty cache, and wait until each of `due`, JavaScript conditions, has been true once."""
        context = self.browser.new_context(viewport={"width": 1280, "height": 900})
        tests = ", ".join(f"{name}: () => {test}" for name, test in due.items())
        context.add_init_script(
            f"sessionStorage.setItem('earshot.project', '{processes.KEY}'); {WATCH % f'{{ {tests} }}'}"
        )
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{self.server.port}/dashboard/#/{view}")
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while len(_there(page)) < len(due):
            if time.monotonic() > deadline:
                raise processes.BenchmarkError(f"{view} has only {_there(page)} after {GIVE_UP_SECONDS} s")
            page.wait_for_timeout(50)
        yield page
        context.close()

    def renderer_bytes(self) -> int:
        """Return the memory of a tab's largest process; shared memory counts proportionally."""
        children = psutil.Process().children(recursive=True)
        return max(procfs.proportional_bytes(one.pid) for one in children if "--type=renderer" in one.cmdline())


def measure(setup: Setup) -> Iterator[Row]:
    """Yield the time until an hour's result is shown, and the memory of its tab."""
    from playwright.sync_api import sync_playwright  # `make check` installs it.

    seconds = setup.size(HOUR)
    with processes.temporary_directory() as directory:
        job = long_job.fill(directory / "data", seconds)
        with processes.service(directory / "data") as server, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=processes.chromium(), args=["--no-sandbox"])
            yield from long_result(Dashboard(server, browser, job, setup))
            browser.close()


def long_result(dashboard: Dashboard) -> Iterator[Row]:
    """Yield the time until an hour's result is usable, and the memory of its tab; its picture exists before."""
    rows = "document.querySelectorAll('tbody tr').length >= 50 && document.querySelectorAll('.turns li').length >= 50"
    drawn = f"{rows} && document.querySelector('.timeline') && !document.querySelector('.timeline [role=status]')"
    times, pictures, memory = [], [], []
    with dashboard.tab(f"jobs/{dashboard.job}", usable=rows, drawn=drawn) as page:
        making = _there(page)["drawn"]
    for _ in range(dashboard.setup.pairs):
        with dashboard.tab(f"jobs/{dashboard.job}", usable=rows, drawn=drawn) as page:
            there = _there(page)
            times.append(there["usable"])
            pictures.append(there["drawn"])
            for _ in range(8):
                page.get_by_role("button", name="Zoom in").click()
                page.wait_for_timeout(300)
            time.sleep(1.0)
            memory.append(dashboard.renderer_bytes() / MB)
    beside = {"its picture": sorted(pictures)[len(pictures) // 2], "its picture, made first": making}
    yield value_row("hour's result, to usable", times, "ms", RESULT_MS_BAR, beside)
    yield value_row("hour's result, memory of the tab", memory, "MB", TAB_MB_BAR)


def _there(page: Page) -> dict[str, float]:
    times: dict[str, float] = page.evaluate("window.there")
    return times
