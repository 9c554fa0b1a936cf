"""Teaching a sound as a user would: mark, learn, preview, switch on."""

import json
import re
from typing import Any

from playwright.sync_api import Page, expect

from tests.audio import WARBLE_S, encoded, warbles
from tests.contract.api import RAW, Api
from tests.dashboard.conftest import sign_in
from tests.process import KEY, ServiceProcess
from tests.waiting import wait_for

TAKES = 12
KEYED = {"X-Api-Key": KEY}
OWN = "/api/v1/own_sounds/Door_warbler"


def analysed(api: Api, audio: bytes) -> str:
    """Return a job whose sound events have completed."""
    form: dict[str, Any] = {
        "options": (None, json.dumps({"sound_event_detection": True})),
        "audio": ("yard.flac", audio, "audio/flac"),
    }
    job = str(api.http.post("/api/v1/analyze_file", files=form, headers=KEYED).json()["job_id"])
    wait_for(lambda: api.http.get(f"/api/v1/jobs/{job}", headers=KEYED).json()["status"] == "completed")
    return job


def test_sound_is_taught_and_switched_on(page: Page, dashboard: ServiceProcess, api: Api) -> None:
    job = analysed(api, encoded(warbles(*range(TAKES)), kind="FLAC"))
    sign_in(page, dashboard)
    page.goto(f"{dashboard.url}/dashboard/#/jobs/{job}")
    page.get_by_text("Teach a sound of your own").click()
    page.get_by_label("Its name").fill("door warbler")
    for number in range(2):
        page.get_by_label("Passage from").fill(str(WARBLE_S * number))
        page.get_by_label("Passage to").fill(str(WARBLE_S * number + 3))
        page.get_by_role("button", name="This is it", exact=True).click()
        marked = "1 passage is" if number == 0 else f"{number + 1} passages are"
        expect(page.get_by_text(f"{marked} marked as the sound")).to_be_visible()
    page.get_by_label("Passage from").fill("500")
    page.get_by_role("button", name="This is it", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("must be after start")
    page.goto(f"{dashboard.url}/dashboard/#/own")
    expect(page.get_by_text("8 more are needed")).to_be_visible()
    expect(page.get_by_role("button", name="Learn", exact=True)).to_be_disabled()
    expect(page.get_by_role("button", name="Switch on")).to_be_disabled()
    for number in range(2, TAKES - 2):
        passage = {"start": WARBLE_S * number, "end": WARBLE_S * number + 3}
        assert api.http.post(f"{OWN}/jobs/{job}", json=passage, headers=KEYED).status_code == 201
    page.reload()
    page.get_by_role("button", name="Learn", exact=True).click()
    expect(page.get_by_text(re.compile(r"In streams: \d+ % of the passages are found"))).to_be_visible()
    page.get_by_role("button", name="What it would have found since yesterday").click()
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="yard.flac")).first
    expect(row).to_be_visible()
    row.get_by_role("button", name=re.compile("This is Door warbler")).click()
    expect(row.get_by_text("marked", exact=True)).to_be_visible()
    page.get_by_role("button", name="Switch on").click()
    expect(page.get_by_role("button", name="Switch off")).to_be_visible()

    # From now on it is reported in recordings and live sessions, as in the preview.
    later = analysed(api, encoded(warbles(TAKES - 1, TAKES - 2), kind="FLAC"))
    result = api.http.get(f"/api/v1/jobs/{later}", headers=KEYED).json()["result"]["sound_event_detection"]["results"]
    reported = [one["start_time_sec"] for one in result if "Door_warbler" in [tag["class"] for tag in one["classes"]]]
    found = api.http.get(f"{OWN}/jobs/{later}", headers=KEYED).json()["found"]
    assert reported
    assert min(reported) == found[0]["start"]
    assert max(reported) + 2 == found[-1]["end"]
    session = api.create("stream", RAW)
    api.send(session, (32767 * warbles(TAKES - 1)).astype("<i2").tobytes())
    api.seal(session)
    windows = api.results(session).json()["data"]
    names = [[tag["name"] for tag in window["tags"]] for window in windows]
    assert any("Door_warbler" in one for one in names)
    live = api.http.get(f"{OWN}/sessions/{session}", headers=KEYED).json()["found"]
    assert live[0]["start"] == next(
        window["start_time"] for window, one in zip(windows, names, strict=True) if "Door_warbler" in one
    )
    page.goto(f"{dashboard.url}/dashboard/#/live/{session}")
    verdict = page.get_by_role("button", name=re.compile("This is not Door warbler")).first
    verdict.click()
    expect(page.get_by_text("marked as another")).to_be_visible()
    page.goto(f"{dashboard.url}/dashboard/#/own")
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_text("No own sounds yet")).to_be_visible()
