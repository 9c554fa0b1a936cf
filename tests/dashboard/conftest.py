"""A service with the dashboard, and a real browser."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import soundfile
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, TimeoutError, expect, sync_playwright

from infra.examples import RECORDING
from tests.contract.api import Api
from tests.cutter import Cutter
from tests.dashboard.browsers import FARAWAY as FARAWAY
from tests.dashboard.browsers import arguments, chromium
from tests.process import KEY, ORG_KEY, ServiceProcess
from tests.waiting import wait_for

DOOR = RECORDING.with_name("door.ogg")
#: Text that would run if a page did not escape it.
MARKUP = "<img src=x onerror=alert(1)>"
#: Milliseconds; the machine may be busy.
PATIENCE = 60_000
expect.set_options(timeout=PATIENCE)
CHROMIUM = chromium()
#: What is wider than its place, and does not fade out at a side where there is more.
CUT = """[...document.querySelectorAll("main *")].filter((one) =>
  one.checkVisibility() && one.scrollWidth > one.clientWidth + 1 && !one.matches(".unseen, .heat *")
  && ["auto", "scroll", "hidden"].includes(getComputedStyle(one).overflowX)
  && !["left", "right"].some((side) => one.dataset[side] === "true")
).map((one) => one.outerHTML.slice(0, 200))"""


@pytest.fixture(scope="session")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """An unshared service, because its keys are rotated. A page cannot tell on which log it is."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on the PATH")
    own = {"bundled_engines": "true", "delivery_networks": "127.0.0.0/8"}
    with ServiceProcess(tmp_path_factory.mktemp("dashboard") / "data", **own) as process:
        yield process


@pytest.fixture
def api(dashboard: ServiceProcess) -> Iterator[Api]:
    api = Api(dashboard)
    yield api
    api.http.close()


@pytest.fixture(scope="module")
def browser(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser whose microphone plays the module's HEARD, by default the recording of the dog at the door.

    Module-scoped, because an event loop runs in this thread while it exists, and other tests have their own.
    """
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on the PATH")
    with sync_playwright() as playwright:
        heard = arguments(getattr(request.module, "HEARD", DOOR), tmp_path_factory.mktemp("microphone"))
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=heard)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A tab that fails the test on any script error and on any policy violation."""
    faults: list[str] = []
    context = browser.new_context(
        viewport={"width": 1100, "height": 800}, permissions=["clipboard-read", "clipboard-write"]
    )
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    yield page
    context.close()
    # The browser's own messages about refused requests, which the page shows anyway, and about plain HTTP.
    notes = ("Failed to load resource", "WebSocket connection to", "Cross-Origin-Opener-Policy header has been ignored")
    assert [fault for fault in faults if not any(note in fault for note in notes)] == []


def door(path: Path, seconds: float | None = None) -> Path:
    """Write the recording of the dog at the door, or its beginning, in the format of a path's suffix."""
    samples, rate = soundfile.read(DOOR, dtype="int16")
    soundfile.write(path, samples[: None if seconds is None else int(seconds * rate)], rate)
    return path


def link(service: ServiceProcess) -> str:
    return service.command("link").strip()


def sign_in(page: Page, service: ServiceProcess | Cutter | SimpleNamespace, view: str = "try", **keys: str) -> None:
    """Open a view with keys in the tab."""
    keys = keys or {"project": KEY, "organization": ORG_KEY}
    # Keys of the tab belong to the origin, so a file of the page takes them; the page itself loads once.
    page.goto(f"{service.url}/dashboard/icon.svg")
    page.evaluate(
        "keys => { for (const [kind, key] of Object.entries(keys)) sessionStorage.setItem(`earshot.${kind}`, key) }",
        keys,
    )
    page.goto(f"{service.url}/dashboard/#/{view}")


def playable(page: Page) -> None:
    """Wait until the player has its recording: a place that is chosen before is not played."""
    wait_for(lambda: page.evaluate("document.querySelector('audio')?.readyState > 0"))


@contextmanager
def copied(page: Page) -> Iterator[None]:
    """Check that a button says during the body that it copied: it says so for two seconds only."""
    page.evaluate(
        """() => {
          window.copied = false;
          const look = () => { window.copied ||= document.body.innerText.includes("Copied"); };
          new MutationObserver(look).observe(document.body, { subtree: true, childList: true, characterData: true });
        }"""
    )
    yield
    wait_for(lambda: page.evaluate("window.copied"))


def for_everybody(page: Page) -> None:
    """Check that axe reports nothing, and that nothing is wider than the screen."""
    found = Axe().run(page)
    assert found.violations_count == 0, f"{page.url}: {found.generate_report()}"
    assert page.viewport_size is not None
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"], page.url
    # The page learns the width of what has just come only when the browser draws it.
    try:
        page.wait_for_function(f"() => !{CUT}.length")
    except TimeoutError:
        assert page.evaluate(CUT) == [], f"{page.url}: this is cut without a cue"
        raise


@contextmanager
def receiver() -> Iterator[tuple[str, list[Any]]]:
    """A webhook on this machine, and what it got."""
    got: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            got.append(json.loads(body) | {"signed": self.headers["webhook-signature"]})
            self.send_response(204)
            self.end_headers()

        def log_message(self, *arguments: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/hook", got
    server.shutdown()
    server.server_close()
