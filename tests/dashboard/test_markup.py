"""Text from others is escaped: names of files and sounds, transcripts, summaries, causes of failures."""

import csv
import json
import shutil
from pathlib import Path

from playwright.sync_api import Page, WebSocketRoute, expect

from tests.contract.api import Api
from tests.dashboard.conftest import DOOR, MARKUP, sign_in
from tests.process import ServiceProcess

#: Text that a spreadsheet would run as a formula.
FORMULA = "=1+1"
TIMES = {"start_time_sec": 0.0, "end_time_sec": 1.0}
LATER = {"start_time_sec": 1.0, "end_time_sec": 2.0}
#: A result that a hostile recording, engine or model could produce.
HOSTILE = {
    "status": "completed",
    "created_at": "2026-11-22T06:51:02Z",
    "result": {
        "metadata": {"audio": {"input": {"filename": f"{MARKUP}.ogg"}}, "warnings": [f"warned {MARKUP}"]},
        "sound_event_detection": {
            "status": "success",
            "results": [
                {**TIMES, "classes": [{"class": f"sound {MARKUP}", "confidence": 0.9}]},
                {**LATER, "classes": [{"class": FORMULA, "confidence": 0.8}]},
            ],
        },
        "speech_analysis": {
            "status": "success",
            "results": [
                {**TIMES, "speaker": f"A {MARKUP}", "speaker_name": f"named {MARKUP}"}
                | {"transcript": f"said {MARKUP}", "translation": f"translated {MARKUP}"},
                {**LATER, "speaker": FORMULA, "transcript": MARKUP, "words": [{**LATER, "word": f"word{MARKUP}"}]},
            ],
        },
        "caption": {"status": "success", "result": {"caption": f"captioned {MARKUP}"}},
        "audio_insights": {
            "status": "success",
            "result": {
                "primary_sound_environment": f"place {MARKUP}",
                "situation_summary": f"summary {MARKUP}",
                "speech_content_summary": f"content {MARKUP}",
                "detected_language": f"language {MARKUP}",
                "keywords": [f"keyword {MARKUP}"],
            },
        },
        "translation": {"status": "error", "error": f"failed {MARKUP}"},
    },
}
SHOWN = "warned sound named said translated captioned place summary content language keyword failed".split()  # noqa: SIM905


def nothing_but_text(page: Page) -> None:
    """Check that the markup created no element; a script in it would already have failed the test."""
    assert page.locator("img").count() == 0


def test_file_names_are_escaped(page: Page, dashboard: ServiceProcess, api: Api, tmp_path: Path) -> None:
    name = f"{MARKUP}.ogg"
    shutil.copy(DOOR, tmp_path / name)
    sign_in(page, dashboard)
    page.get_by_label("Speech").uncheck()
    page.locator("input[type=file]").set_input_files(tmp_path / name)
    expect(page.locator(".title strong")).to_have_text(name)
    session = api.create(file_name=name, metadata={MARKUP: MARKUP})
    for view in ("jobs", "live"):
        sign_in(page, dashboard, view)
        expect(page.get_by_text(name).first).to_be_visible()
        nothing_but_text(page)
    api.seal(session)


def test_hostile_result_is_escaped(page: Page, dashboard: ServiceProcess, tmp_path: Path) -> None:
    page.route("**/api/v1/jobs/hostile", lambda route: route.fulfill(json=HOSTILE))
    page.route("**/api/v1/jobs/hostile/*", lambda route: route.fulfill(status=404, json={"error": f"gone {MARKUP}"}))
    sign_in(page, dashboard, "jobs/hostile")
    for word in SHOWN:
        expect(page.get_by_text(f"{word} {MARKUP}").first).to_be_visible()
    expect(page.get_by_text(f"word{MARKUP}")).to_be_visible()
    nothing_but_text(page)
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    download.value.save_as(tmp_path / "table.csv")
    cells = [cell for row in csv.reader((tmp_path / "table.csv").read_text().splitlines()) for cell in row]
    assert f"'{FORMULA}" in cells
    assert not [cell for cell in cells if cell.startswith("=")]


def test_engine_error_is_escaped(page: Page, dashboard: ServiceProcess) -> None:
    result = {"sound_event_detection": {"status": "error", "error": f"broken {MARKUP}"}}
    page.route("**/api/v1/jobs/failed", lambda route: route.fulfill(json={"status": "completed", "result": result}))
    sign_in(page, dashboard, "jobs/failed")
    expect(page.get_by_text(f"broken {MARKUP}")).to_be_visible()
    nothing_but_text(page)


def test_sound_and_microphone_names_are_escaped(page: Page, dashboard: ServiceProcess, api: Api) -> None:
    """Models and devices choose their names freely."""
    heard = {"name": f"heard {MARKUP}", "start_time": 0, "probability": 0.9}

    def answer(opened: WebSocketRoute) -> None:
        limits = {"frame_bytes": 1048576, "unacknowledged_bytes": 2097152, "idle_seconds": 30}
        hello = {"type": "hello", "session_id": session, "next_chunk": 0, "cursor": "0", "state": "writable"}
        opened.send(json.dumps({**hello, "limits": limits}))
        opened.send(json.dumps({"type": "sound.started", "cursor": "1", **heard}))

    page.add_init_script(
        f"Object.defineProperty(MediaStreamTrack.prototype, 'label', {{ get: () => {json.dumps(f'device {MARKUP}')} }})"
    )
    sign_in(page, dashboard, "live/microphone")
    page.get_by_role("button", name="Listen").click()
    expect(page.locator(".title strong")).to_have_text(f"device {MARKUP}")
    nothing_but_text(page)
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("The session has ended")).to_be_visible()
    session = api.create()
    page.route_web_socket("**/socket?*", answer)
    sign_in(page, dashboard, f"live/{session}")
    expect(page.get_by_text(f"heard {MARKUP}").first).to_be_visible()
    nothing_but_text(page)
    api.seal(session)
