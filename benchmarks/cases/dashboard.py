"""The browser's work to show the result of an hour in the dashboard."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING, Final

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
ROWS: Final = (
    "document.querySelectorAll('tbody tr').length >= 50 && document.querySelectorAll('.turns li').length >= 50"
)
PICTURE: Final = "document.querySelector('.timeline') && !document.querySelector('.timeline [role=status]')"
#: Records when the result is first usable and its picture drawn, in milliseconds since the page was requested.
WATCH: Final = f"""(() => {{
  const due = {{ usable: () => {ROWS}, drawn: () => {ROWS} && {PICTURE} }};
  new MutationObserver(() => {{
    for (const [name, test] of Object.entries(due))
      if (!(name in window.there) && test()) requestAnimationFrame(() => {{ window.there[name] = performance.now(); }});
  }}).observe(document, {{ childList: true, subtree: true, attributes: true }});
  window.there = {{}};
}})()"""


def measure(setup: Setup) -> Iterator[Row]:
    """Yield the time until an hour's result is usable, and the memory of its tab; its picture exists before."""
    times, pictures, memory = [], [], []
    with processes.temporary_directory() as directory:
        job = long_job.fill(directory / "data", setup.size(HOUR))
        with processes.service(directory / "data") as server, processes.chromium() as browser:
            url = f"{server.url}/dashboard/#/jobs/{job}"
            with _tab(browser, url) as page:
                making = _there(page)["drawn"]
            for _ in range(setup.pairs):
                with _tab(browser, url) as page:
                    there = _there(page)
                    times.append(there["usable"])
                    pictures.append(there["drawn"])
                    for _ in range(8):
                        page.get_by_role("button", name="Zoom in").click()
                        page.wait_for_timeout(300)
                    time.sleep(1.0)
                    memory.append(_renderer_bytes() / MB)
    beside = {"its picture": median(pictures), "its picture, made first": making}
    yield value_row("hour's result, to usable", times, "ms", RESULT_MS_BAR, beside)
    yield value_row("hour's result, memory of the tab", memory, "MB", TAB_MB_BAR)


@contextmanager
def _tab(browser: Browser, url: str) -> Iterator[Page]:
    """Open a result with an empty cache, and wait until it has been usable, and its picture drawn."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.add_init_script(f"sessionStorage.setItem('earshot.project', '{processes.KEY}'); {WATCH}")
    page = context.new_page()
    page.goto(url)
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while len(_there(page)) < 2:
        if time.monotonic() > deadline:
            raise processes.BenchmarkError(f"{url} has only {_there(page)} after {GIVE_UP_SECONDS} s")
        page.wait_for_timeout(50)
    yield page
    context.close()


def _renderer_bytes() -> int:
    """Return the memory of a tab's largest process; shared memory counts proportionally."""
    children = psutil.Process().children(recursive=True)
    return max(procfs.proportional_bytes(one.pid) for one in children if "--type=renderer" in one.cmdline())


def _there(page: Page) -> dict[str, float]:
    times: dict[str, float] = page.evaluate("window.there")
    return times
