"""What a reader does twice, and what the service answers late or only once more asked."""

import json
import re

from playwright.sync_api import Page, Route, expect

from tests.dashboard.conftest import DOOR, sign_in
from tests.process import ServiceProcess
from tests.waiting import wait_for

SLOW_MICROPHONE = """
    window.opened = 0;
    const open = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
    navigator.mediaDevices.getUserMedia = async (wish) => {
      window.opened += 1;
      await new Promise((resolve) => { window.allow = resolve; });
      return open(wish);
    };
"""


def test_second_click_opens_no_second_microphone(page: Page, dashboard: ServiceProcess) -> None:
    page.add_init_script(SLOW_MICROPHONE)
    for view, button in (("live/microphone", "Listen"), ("try", "Record")):
        sign_in(page, dashboard, view)
        page.get_by_role("button", name=button, exact=True).dblclick()
        wait_for(lambda: page.evaluate("Boolean(window.allow)"))
        assert page.evaluate("window.opened") == 1
        page.evaluate("window.allow()")
        page.get_by_role("button", name=re.compile("^Stop")).click()


def test_refresh_shows_first_page_again(page: Page, dashboard: ServiceProcess) -> None:
    def listed(route: Route) -> None:
        second = "next_token" in route.request.url
        jobs = [{"job_id": f"job{n}", "status": "completed", "created_at": 0} for n in ((3, 4) if second else (1, 2))]
        route.fulfill(json={"jobs": jobs, "next_token": None if second else "more"})

    page.route("**/api/v1/jobs?*", listed)
    sign_in(page, dashboard, "jobs")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(2)
    page.get_by_role("button", name="More").click()
    expect(rows).to_have_count(4)
    page.get_by_role("button", name="Refresh").click()
    expect(rows).to_have_count(2)


def test_result_follows_job_to_another_node(page: Page, dashboard: ServiceProcess) -> None:
    asked: list[str | None] = []

    def streamed(route: Route) -> None:
        asked.append(route.request.headers.get("last-event-id"))
        moved = 'event: progress\nid: 3\ndata: {"status": "processing", "progress": 0.5}\n\nevent: error\ndata: {}\n\n'
        body = moved if len(asked) == 1 else "event: completed\nid: 9\ndata: {}\n\n"
        route.fulfill(content_type="text/event-stream", body=body)

    page.route("**/api/v1/jobs/moving", lambda route: route.fulfill(json={"status": "accepted", "result": {}}))
    page.route("**/api/v1/jobs/moving/stream", streamed)
    sign_in(page, dashboard, "jobs/moving")
    expect(page.get_by_role("button", name="JSON")).to_be_enabled()
    assert asked == [None, "3"]


def test_recording_sent_again_is_same_job(page: Page, dashboard: ServiceProcess) -> None:
    names: list[str] = []

    def lost(route: Route) -> None:
        names.append(route.request.headers["idempotency-key"])
        if len(names) == 1:
            route.abort()
        else:
            route.continue_()

    page.route("**/api/v1/analyze_file", lost)
    sign_in(page, dashboard)
    for _ in range(2):
        page.locator("input[type=file]").set_input_files(DOOR)
        expect(page.get_by_text("does not answer").or_(page.get_by_role("heading", name="Sounds"))).to_be_visible()
    assert len(names) == 2
    assert len(set(names)) == 1


def test_player_asks_for_new_link_while_audio_is_away(page: Page, dashboard: ServiceProcess) -> None:
    links: list[str] = []

    def link(route: Route) -> None:
        links.append(f"/api/v1/jobs/kept/audio?token={len(links) + 1}")
        if len(links) == 2:
            route.fulfill(status=503, json={"error": "busy"}, headers={"Retry-After": "1"})
        else:
            route.fulfill(json={"url": links[-1], "expires_at": "2999-01-01T00:00:00Z"})

    def audio(route: Route) -> None:
        if "token=3" in route.request.url:
            route.fulfill(path=DOOR, content_type="audio/ogg")
        else:
            route.fulfill(status=503)

    page.route("**/api/v1/jobs/kept", lambda route: route.fulfill(json={"status": "completed", "result": {}}))
    page.route("**/api/v1/jobs/kept/audio", link)
    page.route("**/api/v1/jobs/kept/audio?*", audio)
    page.route("**/api/v1/jobs/kept/spectrogram?*", lambda route: route.fulfill(status=500, json={"error": "faint"}))
    sign_in(page, dashboard, "jobs/kept")
    wait_for(lambda: page.evaluate("document.querySelector('audio')?.duration > 0"))
    assert len(links) == 3


def test_page_of_documents_shows_messages_of_live_socket(page: Page, dashboard: ServiceProcess) -> None:
    page.goto(f"{dashboard.url}/docs#asyncapi.json")
    expect(page.get_by_role("heading", name="/api/v1/socket")).to_be_visible()
    expect(page.get_by_text("Hello").first).to_be_visible()
    assert "undefined" not in json.dumps(page.locator("main").inner_text())
