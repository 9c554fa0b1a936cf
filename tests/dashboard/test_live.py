"""Listening in a browser: one tab's microphone as heard in another tab, and losses on a broken connection."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from types import SimpleNamespace

import msgspec
import pytest
from playwright.sync_api import Page, Route, WebSocket, expect

from tests.contract.api import Api, silence, tone
from tests.cutter import Cutter, proxied
from tests.dashboard.conftest import for_everybody, link, sign_in
from tests.process import KEY, ServiceProcess
from tests.waiting import wait_for

#: Chromium's name for its file-based microphone.
MICROPHONE = "Fake Default Audio Input"
TIME = re.compile(r"\d\d?:\d\d:\d\d")
#: The number of colours of a spectrogram.
COLOURS = """canvas => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return new Set(new Uint32Array(data.buffer)).size;
}"""


YARD = {"session_id": "yard", "file_name": "Yard", "type": "stream", "state": "writable", "next_window": 0}


def test_microphone_of_one_tab_appears_in_another(page: Page, dashboard: ServiceProcess) -> None:
    sign_in(page, dashboard, "live/microphone")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    other = page.context.new_page()
    faults: list[str] = []
    other.on("pageerror", lambda error: faults.append(str(error)))
    days: list[str] = []
    other.on("request", lambda request: days.append(request.url) if "/api/v1/activity" in request.url else None)
    sign_in(other, dashboard, "live")
    wait_for(lambda: other.evaluate("true") and days)
    before = len(days)
    page.get_by_role("button", name="Listen").click()
    card = other.locator(".card.session").filter(has_text="Opened", has_not_text="ended").first
    expect(card).to_contain_text(re.compile(r"Opened \d+:\d\d"))
    expect(card.get_by_role("link")).to_have_text(MICROPHONE)
    expect(card).to_contain_text("Dog bark")
    expect(card).to_contain_text(re.compile(r"-\d+ dBFS"))
    expect(card).to_contain_text(re.compile("Dog bark, on since"))
    heard = other.get_by_role("table", name="Sounds").get_by_role("row").filter(has_text="Dog bark")
    expect(heard.filter(has_text=re.compile(rf"{TIME.pattern}.*? to .*?{TIME.pattern}")).first).to_be_visible()
    expect(other.locator("#counted")).to_contain_text(re.compile(r"[1-9]\d* windows came"))
    # It requests its day again at the first sound, not after a minute.
    wait_for(lambda: other.evaluate("true") and len(days) > before, 30)
    card.get_by_role("link").click()
    expect(other.get_by_role("heading", name="Now")).to_be_visible()
    bark = other.get_by_role("row").filter(has=other.get_by_role("cell", name="Dog bark", exact=True))
    expect(bark.first).to_be_visible()
    expect(other.get_by_role("listitem").filter(has_text="on since").first).to_contain_text(TIME)
    expect(bark.filter(has_text=re.compile(rf"{TIME.pattern}.*? to .*?{TIME.pattern}")).first).to_be_visible()
    windows = other.get_by_role("table", name="Windows")
    expect(windows).to_have_count(0)
    other.get_by_text("Windows", exact=True).click()
    expect(windows.get_by_role("row").filter(has_text=re.compile(r"Dog bark \d+ %")).first).to_be_visible()
    picture = other.get_by_role("img", name=re.compile(r"Spectrogram of the last \d+ s, 0 to 8 kHz"))
    wait_for(lambda: picture.evaluate(COLOURS) > 50)
    for scale in "8 kHz", "now", re.compile(r"^\d+ s ago$"):
        expect(other.locator("figure").get_by_text(scale).first).to_be_visible()
    hour = other.get_by_role("table", name="For how long").get_by_role("row", name="Dog bark")
    expect(hour).to_contain_text(re.compile(r"\d+ s"))
    other.reload()
    expect(bark.first).to_be_visible()
    expect(hour).to_be_visible()
    # The microphone's tab does not wait for the end of its minute.
    expect(page.get_by_role("table", name="For how long").get_by_role("row", name="Dog bark")).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("The session has ended")).to_be_visible()
    expect(page.get_by_role("row").filter(has=page.get_by_role("cell", name="Dog bark")).first).to_be_visible()
    expect(other.get_by_text("The session has ended")).to_be_visible()
    other.get_by_role("link", name="All sessions").click()
    other.get_by_role("row").filter(has_text="ended").get_by_role("link").first.click()
    expect(bark.first).to_be_visible()
    assert faults == []
    assert not [url for url in asked if "/chunks/" in url], "sound goes by the socket alone"


class Sent:
    """The binary messages of a page's sockets by number; a repeated message must be identical."""

    def __init__(self, page: Page) -> None:
        self.chunks: dict[int, bytes] = {}
        self.sockets = 0
        page.on("websocket", self._opened)

    @property
    def samples(self) -> int:
        return sum(map(len, self.chunks.values())) // 2

    def _opened(self, opened: WebSocket) -> None:
        places: list[int] = []

        def received(text: str | bytes) -> None:
            message = msgspec.json.decode(text)
            if message["type"] == "hello":
                places.append(message["next_chunk"])
                self.sockets += 1

        def sent(data: str | bytes) -> None:
            if isinstance(data, bytes):
                assert self.chunks.setdefault(places[0], data) == data
                places[0] += 1

        opened.on("framereceived", received)
        opened.on("framesent", sent)


#: Counts the samples that the page's microphone delivers until the page closes it.
COUNT_SAMPLES = """
    window.delivered = 0;
    window.AudioWorkletNode = class extends AudioWorkletNode {
      constructor(...settings) {
        super(...settings);
        const { port } = this;
        port.addEventListener("message", ({ data }) => { if (port.onmessage) window.delivered += data.length; });
      }
    };
"""


def windows_of(samples: int) -> int:
    """Return the number of windows of a stream: one per half second, each of a second, and one for the remainder."""
    rest = samples % 8000
    return samples // 8000 - 1 + (rest >= 400)


def test_microphone_audio_survives_killed_service(page: Page, dashboard: ServiceProcess) -> None:
    """The microphone's audio during the service's death is analysed, once, after the restart."""
    sent = Sent(page)
    page.add_init_script(COUNT_SAMPLES)
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(link(dashboard))
    expect(page.get_by_role("heading", name="Try it")).to_be_visible()
    page.get_by_role("link", name="Live", exact=True).click()
    began = time.monotonic()
    page.get_by_role("link", name="Listen with the microphone").click()
    expect(page.get_by_role("status").filter(has_text="Live")).to_be_visible()
    expect(page.get_by_role("listitem").filter(has_text="on since").first).to_be_visible()
    for_everybody(page)
    dashboard.kill()
    expect(page.get_by_text("Cut: trying again")).to_be_visible()
    page.wait_for_timeout(5000)
    expect(page.get_by_text(re.compile(r"([5-9]|\d\d) s of sound wait here"))).to_be_visible()
    for_everybody(page)
    dashboard.start()
    expect(page.get_by_role("status").filter(has_text="Live")).to_be_visible()
    before = page.get_by_role("table", name="Sounds").get_by_role("row").count()
    wait_for(lambda: page.get_by_role("table", name="Sounds").get_by_role("row").count() > before)
    page.get_by_role("button", name="Stop").click()
    seconds = time.monotonic() - began
    ended = page.get_by_text(re.compile(r"The session has ended, after \d+ windows"))
    expect(ended).to_be_visible()
    assert sent.sockets == 2
    assert sorted(sent.chunks) == list(range(len(sent.chunks)))
    # A busy browser records less, and all of that is sent.
    assert sent.samples == page.evaluate("window.delivered")
    assert sent.samples / 16_000 < seconds + 3
    assert f"after {windows_of(sent.samples)} windows" in ended.inner_text()
    expect(page.get_by_text(f"{windows_of(sent.samples)} windows here")).to_be_visible()


@pytest.fixture
def cutter(dashboard: ServiceProcess) -> Iterator[Cutter]:
    with proxied(nullcontext(SimpleNamespace(port=dashboard.port))) as cutter:
        yield cutter


def cut(cutter: Cutter) -> None:
    """Break all connections, and let none open."""
    cutter.away = True
    cutter.cut()


def counted(page: Page) -> int:
    """Return the number of windows that a page has counted."""
    found = re.match(r"(\d+) windows?", page.locator("#counted").inner_text())
    assert found is not None
    return int(found[1])


def test_broken_connection_loses_no_windows(page: Page, cutter: Cutter, api: Api) -> None:
    """For all sessions and for one: what arrived during the outage is read after it."""
    one, both = api.create(file_name="<b>yard</b>"), page.context.new_page()
    sign_in(page, cutter, "live")
    sign_in(both, cutter, f"live/{one}")
    card = page.locator(".card.session").filter(has_text="<b>yard</b>")
    expect(card).to_be_visible()
    expect(both.get_by_text("Nothing was heard yet")).to_be_visible()
    before = counted(page)
    for number in range(4):
        api.put(one, number, tone(0.5))
    expect(both.get_by_text("3 windows here")).to_be_visible()
    cut(cutter)
    expect(both.get_by_text("The connection is broken")).to_be_visible()
    expect(page.get_by_text("The connection is broken")).to_be_visible()
    for number in range(4, 10):
        api.put(one, number, tone(0.5))
    api.page(one, offset=8)
    cutter.away = False
    for number in range(10, 14):
        api.put(one, number, tone(0.5))
    expect(both.get_by_text("13 windows here")).to_be_visible()
    wait_for(lambda: counted(page) >= before + 13)
    assert api.delete(one).status_code == 204
    expect(both.get_by_text("The session was deleted")).to_be_visible()
    expect(card).to_have_count(0)
    both.reload()
    expect(both.get_by_role("alert")).to_contain_text("There is no such session")


def test_proxy_that_blocks_websockets_is_reported(page: Page, cutter: Cutter, api: Api) -> None:
    """The microphone buffers audio until a socket opens; a session's windows are shown anyway."""
    cutter.refuses_sockets = True
    said = page.get_by_text("a proxy in between")
    session = api.create()
    api.put(session, 0, tone(2.0))
    sign_in(page, cutter, f"live/{session}")
    expect(said).to_be_visible()
    expect(page.get_by_text("3 windows here")).to_be_visible()
    api.seal(session)
    sign_in(page, cutter, "live/microphone")
    page.get_by_role("button", name="Listen").click()
    expect(said).to_be_visible()
    cutter.refuses_sockets = False
    expect(page.get_by_role("status").filter(has_text="Live")).to_be_visible()
    expect(said).to_have_count(0)
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("The session has ended")).to_be_visible()


def test_refused_or_left_microphone_ends_its_session(page: Page, dashboard: ServiceProcess, api: Api) -> None:
    sign_in(page, dashboard, "live/microphone")
    page.get_by_role("button", name="Listen").click()
    expect(page.get_by_role("status").filter(has_text="Live")).to_be_visible()

    def newest() -> dict[str, str]:
        (newest,) = api.http.get("/audio_sessions/?count=1", headers={"X-Api-Key": KEY}).json()["sessions"]
        return dict(newest)

    deleted = newest()
    assert deleted["file_name"] == MICROPHONE
    expect(page).to_have_title(f"{MICROPHONE} · Earshot")
    expect(page.locator(".title .hint")).to_have_text("open")
    assert api.delete(deleted["session_id"]).status_code == 204
    # The list of sounds may show it too, if it is read at that moment.
    expect(page.get_by_role("alert").first).to_contain_text("does not exist or was deleted")
    expect(page.locator(".title .hint")).not_to_have_text("open")
    page.get_by_role("button", name="Listen again").click()
    expect(page.get_by_role("status").filter(has_text="Live")).to_be_visible()
    # Nobody can stop the session of a page that is gone.
    page.reload()
    wait_for(lambda: newest()["session_id"] != deleted["session_id"] and newest()["state"] == "readonly")


def test_windows_of_two_outages_are_counted_once(page: Page, cutter: Cutter, api: Api) -> None:
    """The page shows them though no event follows, and reads them once even if a second break repeats the request."""
    late: list[Route] = []
    page.route("**/status?*", lambda route: late.append(route))
    sign_in(page, cutter, "live")
    one = api.create(file_name="late")
    card = page.locator(".card.session").filter(has_text="late")
    expect(card).to_be_visible()
    before = counted(page)
    for number in range(2):
        cut(cutter)
        expect(page.get_by_text("The connection is broken")).to_be_visible()
        for chunk in range(4 * number, 4 * number + 4):
            api.put(one, chunk, tone(0.5))
        api.page(one, offset=4 * number + 2)
        cutter.away = False
        expect(page.get_by_text("The connection is broken")).to_be_hidden()
        wait_for(lambda: counted(page) == before and late)
    api.seal(one)
    expect(card).to_contain_text("ended")
    assert counted(page) == before

    def read() -> bool:
        while late:
            late.pop().continue_()
        return counted(page) == before + 7

    wait_for(read)


def test_live_stream_sounds_appear_on_card_and_table(page: Page, dashboard: ServiceProcess) -> None:
    """A card shows current sounds; the table below shows their times; a break leaves no sound on forever."""
    later = datetime.now(UTC) + timedelta(minutes=5)  # It is not silent while this test runs.
    opened = datetime(2026, 11, 22, 10, 31, tzinfo=UTC)
    heard = (later - opened).total_seconds()
    times = {"created_at": opened.isoformat(), "updated_at": later.isoformat(), "seconds": heard}
    minute = opened.astimezone().minute  # Time zones may differ by half an hour.
    sound = {"session_id": "yard", "name": "Dog_bark", "start_time": 7.0, "probability": 0.9}
    told = [
        ("session", {**YARD, **times}),
        ("sound.started", sound),
        ("sound.started", {**sound, "name": "Siren", "start_time": 8.0}),
        ("sound.ended", {**sound, "name": "Siren", "start_time": 8.0, "end_time": 9.5}),
    ]
    answers = [told]

    def answer(route: Route) -> None:
        events = answers.pop() if answers else []
        pieces = [f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, data in events]
        route.fulfill(content_type="text/event-stream", body="".join(pieces))

    page.route("**/api/v1/live*", answer)
    sign_in(page, dashboard, "live")
    table, card = page.get_by_role("table", name="Sounds"), page.locator(".card.session").filter(has_text="Yard")
    expect(table.get_by_role("row").filter(has_text="Siren")).to_contain_text(
        re.compile(f"{minute}:08.*? to .*?{minute}:09.*0:09.5")
    )
    expect(table.get_by_role("link", name="Yard").first).to_have_attribute("href", "#/live/yard")
    expect(card).to_contain_text(re.compile(f"Dog bark, on since .*{minute}:07"))
    answers.append([("session", {**YARD, **times, "next_window": 9})])
    expect(card).not_to_contain_text("on since")
    expect(table.get_by_role("row").filter(has_text="Dog bark")).to_contain_text(re.compile(f"from .*{minute}:07"))
    # After a pause of the sender, only the place is known.
    answers.append([("session", {**YARD, **times, "seconds": heard - 60, "next_window": 9})])
    expect(table.get_by_role("row").filter(has_text="Siren")).to_contain_text(re.compile("Siren0:08.0 to 0:09.5Yard$"))


def test_clock_of_browser_makes_no_session_silent(page: Page, dashboard: ServiceProcess) -> None:
    """It is an hour ahead of the service's."""
    page.add_init_script("const { now } = Date; Date.now = () => now() + 3_600_000;")
    sent = datetime.now(UTC) + timedelta(minutes=5)  # It is not silent while this test runs.
    times = {"created_at": sent.isoformat(), "updated_at": sent.isoformat(), "seconds": 0}
    event = f"event: session\ndata: {json.dumps({**YARD, **times})}\n\n"
    headers = {"date": format_datetime(datetime.now(UTC), usegmt=True)}
    stream = partial(Route.fulfill, content_type="text/event-stream", headers=headers, body=event)
    page.route("**/api/v1/live*", stream)
    sign_in(page, dashboard, "live")
    card = page.locator(".card.session").filter(has_text="Yard")
    expect(card).to_contain_text("Opened")
    expect(card).not_to_contain_text("Silent since")


def test_selected_day_is_kept_in_url(page: Page, dashboard: ServiceProcess) -> None:
    sign_in(page, dashboard, "live")
    page.get_by_label("Day").fill("2020-02-29")
    expect(page.get_by_text("Nothing was sent on this day")).to_be_visible()
    expect(page).to_have_url(re.compile(r"day=2020-02-29"))
    page.reload()
    expect(page.get_by_label("Day")).to_have_value("2020-02-29")


def test_day_and_ended_sessions_follow_what_is_heard(page: Page, dashboard: ServiceProcess, api: Api) -> None:
    """For up to a minute the page said that nothing was sent, beside the windows of what was."""
    session, both = api.create(file_name="quiet yard"), page.context.new_page()
    sign_in(page, dashboard, f"live/{session}")
    sign_in(both, dashboard, "live")
    empty = page.get_by_text("Nothing was sent on this day")
    expect(empty).to_be_visible()
    expect(both.locator(".card.session").filter(has_text="quiet yard")).to_be_visible()
    api.send(session, silence(1.0), silence(1.0))
    expect(page.get_by_text("3 windows here")).to_be_visible()
    expect(empty).to_have_count(0)
    api.seal(session)
    expect(both.get_by_role("table", name="Ended sessions")).to_contain_text("quiet yard")


def test_ended_sessions_are_paginated(page: Page, dashboard: ServiceProcess, api: Api) -> None:
    for number in range(21):
        api.seal(api.create(file_name=f"door {number}"))
    sign_in(page, dashboard, "live")
    rows = page.get_by_role("row").filter(has_text="door")
    expect(rows).to_have_count(20)
    page.get_by_role("button", name="More").click()
    expect(rows).to_have_count(21)
