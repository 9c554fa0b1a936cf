"""`python -m tests.dashboard.pictures` renews the pictures of the documentation, `docs/pictures`.

It starts a service with content: a recording with its result, live sessions, registered voices, usage.
"""

import itertools
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Final

import soundfile
from PIL import Image
from playwright.sync_api import Page, sync_playwright

from earshot_client import AlarmRule, Client, Destination
from infra.examples import RECORDING
from tests.conftest import ROOT
from tests.contract.api import Api
from tests.contract.jobs import Jobs
from tests.contract.speakers import Speakers, data
from tests.dashboard.browsers import arguments, chromium
from tests.dashboard.conftest import receiver, sign_in
from tests.process import ADMIN_KEY, KEY, ORG_KEY, ServiceProcess

EXAMPLES: Final = RECORDING.parent
DOCS: Final = ROOT / "docs" / "pictures"
KEYS: Final = {"project": KEY, "organization": ORG_KEY, "operator": ADMIN_KEY}
OPTIONS: Final = dict.fromkeys(
    ("sound_event_detection", "speech_analysis", "audio_insights", "caption", "speaker_profile"), True
)
#: Maximum bytes of a picture.
MOST: Final = 100_000
COLOURS: Final = 64


def main() -> None:
    executable = chromium()
    if executable is None:
        raise SystemExit("there is no Chromium on the PATH")
    DOCS.mkdir(exist_ok=True)
    with furnished() as (service, views), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=arguments(EXAMPLES / "kim.ogg"))
        page = browser.new_page(color_scheme="light", locale="en-GB", timezone_id="UTC")
        sign_in(page, service, "models", **KEYS)
        for name, (view, height) in views.items():
            page.set_viewport_size({"width": 1000, "height": 800})
            show(page, service, view)
            page.set_viewport_size({"width": 1000, "height": height})
            small(page.screenshot(), DOCS / f"{name}.png")
        browser.close()


def show(page: Page, service: ServiceProcess, view: str) -> None:
    """Open a view, and wait until it is drawn."""
    page.goto(f"{service.url}/dashboard/#/{view}")
    page.reload()
    page.get_by_role("heading", level=1).wait_for()
    # Live results take some seconds to appear.
    page.wait_for_timeout(9000 if view.startswith("live") else 2500)


def small(picture: bytes, path: Path) -> None:
    """Write a picture with few colours.

    Raises:
        SystemExit: It is still too large for the documentation.
    """
    Image.open(BytesIO(picture)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
    if path.stat().st_size > MOST:
        raise SystemExit(f"{path} has {path.stat().st_size} bytes, more than {MOST}")


@contextmanager
def furnished() -> Iterator[tuple[ServiceProcess, dict[str, tuple[str, int]]]]:
    """Run a service with content; yield it, and the view and height of each picture."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        ServiceProcess(
            Path(scratch) / "data", bundled_engines="true", job_audio_seconds=3600, delivery_networks="127.0.0.0/8"
        ) as service,
        receiver() as (hook, _),
    ):
        with Speakers(service, ORG_KEY) as speakers:
            for name in ("Kim", "Sam"):
                data(speakers.add(name, (EXAMPLES / f"{name.lower()}.ogg").read_bytes()))
        with Jobs(service) as jobs:
            for file in ("door.ogg", "meeting.ogg"):
                job = jobs.accepted((EXAMPLES / file).read_bytes(), OPTIONS, filename=file, kind="audio/ogg")
                jobs.completed(job)
        service.operate("POST", "/organizations", json={"name": "Farm"})
        for name in ("Barn", "Gate"):
            service.project(name, "Farm")
        service.operate("PUT", "/projects/Barn/plan", json={"free_seconds": 36000})
        with Client(service.url, KEY) as client:
            home = client.add_destination(Destination(name="home", kind="webhook", url=hook)).destination.id
            client.add_alarm_rule(AlarmRule(name="dog at the door", tags=("Dog_bark",), destinations=(home,)))
        with live(service) as session:
            yield (
                service,
                {
                    "try": (f"jobs/{job}", 760),
                    "live": (f"live/{session}", 700),
                    "alarms": ("alarms", 640),
                    "speakers": ("speakers", 640),
                    "operator": ("operator", 900),
                },
            )


@contextmanager
def live(service: ServiceProcess) -> Iterator[str]:
    """Send a recording in a loop as a session, half a second at a time; yield its id."""
    samples, rate = soundfile.read(EXAMPLES / "door.ogg", dtype="int16")
    chunks = [samples[start : start + rate // 2].tobytes() for start in range(0, len(samples), rate // 2)]
    ended = threading.Event()
    with Api(service) as api:
        session = api.create(
            content_type=f"audio/x-raw; rate={rate}; format=s16le", file_name="Front door", metadata={"floor": "1"}
        )

        def send() -> None:
            for number, chunk in enumerate(itertools.cycle(chunks)):
                api.put(session, number, chunk).raise_for_status()
                if ended.wait(0.5):
                    return

        sender = threading.Thread(target=send)
        sender.start()
        try:
            yield session
        finally:
            ended.set()
            sender.join()


if __name__ == "__main__":
    main()
