"""The dashboard's first view in a new browser, compared with a page of the same server without views."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks import processes
from benchmarks.cases.setup import Setup, running_service
from benchmarks.measures import Row, value_row

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CONTEXTS: Final = 10
BAR_KB: Final = 24.0
BAR_MS: Final = 300.0
#: Signs in before the page's own scripts run, and records when the page's main element is drawn.
WATCH: Final = """([key, selector]) => {
  sessionStorage.setItem("earshot.project", key);
  const look = () => {
    const there = document.querySelector(selector);
    if (there && !there.disabled) requestAnimationFrame(() => (window.usableAt ??= performance.now()));
    else requestAnimationFrame(look);
  };
  look();
}"""
#: Bytes of scripts and styles on the wire, compressed.
SENT: Final = """() => performance.getEntriesByType("resource")
  .filter((one) => /[.](js|mjs|css)$/.test(one.name)).reduce((sum, one) => sum + one.encodedBodySize, 0)"""


def measure(setup: Setup) -> Iterator[Row]:
    """Yield the bytes of the first view, its time until a file can be chosen, and the ratio to the other page."""
    contexts = setup.size(CONTEXTS, 2)
    with running_service() as (server, _), processes.chromium() as browser:
        first, docs = (server.url + "/dashboard/#/try", "input[type=file]"), (server.url + "/docs", "main details")
        cold(browser, *first), cold(browser, *docs)
        pairs = [(cold(browser, *first), cold(browser, *docs)) for _ in range(contexts)]
    times, others = [ours[0] for ours, _ in pairs], [other[0] for _, other in pairs]
    yield value_row("first view, script and style, packed", [ours[1] / 1e3 for ours, _ in pairs], "KB", BAR_KB)
    yield value_row("first view, cold, usable", times, "ms", BAR_MS)
    ratios = [ours / other for ours, other in zip(times, others, strict=True)]
    yield value_row("first view, cold, over /docs", ratios, "ratio", beside={"/docs ms": median(others)})


def cold(browser: Browser, url: str, selector: str) -> tuple[float, float]:
    """Return (milliseconds until `selector` is drawn, bytes of scripts and styles) of a new context."""
    context = browser.new_context()
    context.add_init_script(f"({WATCH})({[processes.KEY, selector]!r})")
    page = context.new_page()
    page.goto(url)
    page.wait_for_function("() => window.usableAt !== undefined")
    found = float(page.evaluate("() => window.usableAt")), float(page.evaluate(SENT))
    context.close()
    return found
