"""A first hour: plain HTTP, broken addresses, a service that hangs or is down, and starter code."""

import csv
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import soundfile
from playwright.sync_api import Browser, Page, Route, expect

from benchmarks.cases.first_view import BAR_KB, SENT
from tests.contract.api import Api, tone
from tests.dashboard.conftest import DOOR, FARAWAY, copied, door, playable, sign_in
from tests.process import ADMIN_KEY, KEY, ServiceProcess
from tests.waiting import wait_for

#: Requests that get no answer.
HANGING: list[Route] = []
SOUNDS = {"status": "success", "results": []}
TURNS = {"status": "success", "results": [{"start_time_sec": 1.0, "end_time_sec": 2.0, "transcript": "words"}]}


def hang(route: Route) -> None:
    HANGING.append(route)


@pytest.fixture
def faraway(dashboard: ServiceProcess) -> SimpleNamespace:
    """The service at an address that browsers do not trust: plain HTTP at a name other than localhost."""
    return SimpleNamespace(url=dashboard.url.replace("127.0.0.1", FARAWAY))


def test_tabs_share_key_until_sign_out(page: Page, dashboard: ServiceProcess) -> None:
    page.add_init_script(f"sessionStorage.setItem('earshot.project', '{KEY}')")
    page.goto(f"{dashboard.url}/dashboard/#/try")
    expect(page.get_by_role("button", name="Record", exact=True)).to_be_visible()
    assert 0 < page.evaluate(SENT) / 1e3 <= BAR_KB, "the first view has grown"
    other = page.context.new_page()
    other.goto(f"{dashboard.url}/dashboard/#/jobs?state=bogus")
    expect(other.get_by_label("State")).to_have_value("")
    assert other.evaluate("sessionStorage.getItem('earshot.project')") == KEY
    page.get_by_role("button", name="Sign out").click()
    expect(other.get_by_text("Recordings needs the project key.")).to_be_visible()
    other.reload()
    expect(other.get_by_text("Recordings needs the project key.")).to_be_visible()
    assert other.evaluate("sessionStorage.length + localStorage.length") == 0


def test_invalid_addresses_are_handled(page: Page, dashboard: ServiceProcess, api: Api) -> None:
    sign_in(page, dashboard)
    # The page goes there by itself, also after the first address.
    expect(page.get_by_role("heading", level=1)).to_have_text("Try it")
    for address in ("#/%", "#/try/%", "#/welcome/%", "#/constructor"):
        page.goto(f"{dashboard.url}/dashboard/{address}")
        expect(page.get_by_role("heading", level=1)).to_have_text("There is no such page")
        expect(page.get_by_role("navigation")).to_be_visible()
    page.get_by_role("link", name="Models").click()
    expect(page.get_by_role("heading", name="In use")).to_be_visible()
    page.get_by_role("link", name="Skip to the content").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    expect(page.get_by_role("heading", level=1)).to_have_text("Models")
    for day, shown in (("1900-01-01", "1900-01-01"), ("garbage", re.compile(r"^20\d\d-\d\d-\d\d$"))):
        page.goto(f"{dashboard.url}/dashboard/#/live?day={day}")
        expect(page.get_by_label("Day")).to_have_value(shown)
        expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.get_by_label("Day")).to_have_attribute("min", "1970-01-02")
    answer = api.http.get("/api/v1/activity?day=1900-01-01", headers={"X-Api-Key": KEY})
    assert (answer.status_code, answer.json()["sessions"]) == (200, 0)


def test_view_error_is_shown_in_place(browser: Browser, dashboard: ServiceProcess) -> None:
    page = browser.new_page()  # The error is logged to the console, which the fixture `page` does not allow.
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.route("**/api/v1/models", lambda route: route.fulfill(json={"models": [{}], "sensitivity_logits": 1}))
    page.goto(f"{dashboard.url}/dashboard/#/models")
    expect(page.get_by_role("alert")).to_contain_text("This page has a fault")
    page.unroute("**/api/v1/models")
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("heading", name="In use")).to_be_visible()
    page.get_by_role("link", name="Try it").first.click()
    expect(page.get_by_text("Try it needs the project key.")).to_be_visible()
    page.close()
    assert faults == []


def test_plain_http_disables_microphone_and_falls_back_for_copy(
    page: Page, faraway: SimpleNamespace, dashboard: ServiceProcess
) -> None:
    sign_in(page, faraway)
    assert not page.evaluate("isSecureContext")
    expect(page.get_by_role("button", name="Record", exact=True)).to_be_disabled()
    for view in ("try", "live", "live/microphone", "speakers"):
        page.goto(f"{faraway.url}/dashboard/#/{view}")
        expect(page.get_by_text("Browsers allow the microphone only over HTTPS or at localhost.").first).to_be_visible()
    page.goto(f"{faraway.url}/dashboard/#/project")
    code = page.locator("pre").last.inner_text()
    copy = page.get_by_role("button", name="Copy").last
    with copied(page):
        copy.click()
    page.get_by_role("link", name="Models").click()
    search = page.get_by_role("searchbox")
    search.press("Control+v")
    assert search.input_value().split() == code.split()
    page.go_back()
    page.evaluate("document.execCommand = () => false")
    copy.click()
    expect(page.get_by_text("Press Ctrl+C")).to_be_visible()
    assert page.evaluate("getSelection().toString() || document.activeElement.value") == code
    with copied(page):
        page.keyboard.press("Control+c")


def test_denied_microphone_creates_no_session(page: Page, dashboard: ServiceProcess) -> None:
    page.add_init_script(
        "navigator.mediaDevices.getUserMedia = async () => { throw new DOMException('no', 'NotAllowedError') }"
    )
    opened: list[str] = []
    page.on("request", lambda one: opened.append(one.url) if one.method == "POST" else None)
    sign_in(page, dashboard, "live/microphone")
    expect(page).to_have_title("Microphone · Earshot")
    page.get_by_role("button", name="Listen").click()
    expect(page.get_by_role("alert")).to_contain_text("The microphone was refused.")
    assert opened == []


def test_refusal_names_the_file(page: Page, dashboard: ServiceProcess, tmp_path: Path) -> None:
    """The file is not on the page any more, and a reader may have sent several."""
    for name in "notes.wav", "empty.flac":
        (tmp_path / name).write_bytes(b"no audio" * (name == "notes.wav"))
    sign_in(page, dashboard)
    for name in "notes.wav", "empty.flac":
        page.locator("input[type=file]").set_input_files(tmp_path / name)
        expect(page.get_by_role("alert")).to_contain_text(re.compile(rf"^{name}: \w"))


def test_new_choice_clears_alert(page: Page, dashboard: ServiceProcess) -> None:
    """At the third try the browser asks its user."""
    page.add_init_script(
        """let asked = 0;
        navigator.mediaDevices.getUserMedia = () =>
          asked++ < 2 ? Promise.reject(new Error("no")) : new Promise(() => {})"""
    )
    sign_in(page, dashboard)
    for choose in (page.get_by_label("Summary").uncheck, page.get_by_role("button", name="Record", exact=True).click):
        page.get_by_role("button", name="Record", exact=True).click()
        expect(page.get_by_role("alert")).to_contain_text("The microphone cannot be used")
        choose()
        expect(page.get_by_role("alert")).to_have_count(0)


def test_starter_program_runs_unmodified(page: Page, dashboard: ServiceProcess, tmp_path: Path) -> None:
    sign_in(page, dashboard, "project")
    # A bare pip might be the system's.
    expect(page.locator("pre").first).to_contain_text(".client/bin/pip install")
    program = page.locator("pre").last.inner_text()
    assert KEY not in program
    door(tmp_path / "recording.wav")
    keyed = {**os.environ, "EARSHOT_PROJECT_KEY": KEY}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, env=keyed, capture_output=True, text=True, timeout=120)
    assert "Dog_bark" in done.stdout, done.stderr


def test_hanging_service_is_reported_and_retried(page: Page, dashboard: ServiceProcess) -> None:
    """Every request has a timeout, a silent stream is closed, and an old answer is grey."""
    page.clock.install()
    sign_in(page, dashboard, "operator", project=KEY, operator=ADMIN_KEY)
    health = page.locator("section").filter(has=page.get_by_role("heading", name="Health"))
    expect(health).to_contain_text("As of")
    for path in ("**/admin/v1/nodes", "**/api/v1/jobs?*", "**/api/v1/live"):
        page.route(path, hang)
    page.clock.run_for(21_000)
    expect(health.get_by_role("status")).to_contain_text("○ No answer since")
    expect(page.get_by_role("heading", name="Outdated")).to_be_visible()
    page.clock.run_for(15_000)
    expect(health.get_by_role("alert")).to_contain_text("The service does not answer.")
    with page.expect_request("**/api/v1/jobs?*"):
        page.goto(f"{dashboard.url}/dashboard/#/jobs")
    page.clock.run_for(30_000)
    expect(page.get_by_role("alert")).to_contain_text("The service does not answer.")
    expect(page.get_by_role("button", name="Try again")).to_be_visible()
    page.unroute("**/api/v1/jobs?*")
    page.clock.run_for(5000)
    expect(page.get_by_role("alert")).to_have_count(0)
    with page.expect_request("**/api/v1/live"):
        page.goto(f"{dashboard.url}/dashboard/#/live")
    page.clock.run_for(25_000)
    expect(page.get_by_text("The connection is broken")).to_be_visible()
    page.unroute("**/api/v1/live")
    page.clock.run_for(10_000)
    expect(page.get_by_text("The connection is broken")).to_have_count(0)


def test_view_loads_once_service_is_back(page: Page, dashboard: ServiceProcess) -> None:
    page.clock.install()
    sign_in(page, dashboard)
    page.route("**/views/models.js", lambda route: route.abort())
    page.get_by_role("link", name="Models").click()
    expect(page.get_by_role("alert")).to_contain_text("The service does not answer.")
    expect(page.get_by_role("button", name="Try again")).to_be_visible()
    page.unroute("**/views/models.js")
    page.clock.run_for(5000)
    expect(page.get_by_role("heading", name="In use")).to_be_visible()


def test_silent_session_is_listed_last_and_has_no_sound_on(page: Page, dashboard: ServiceProcess, api: Api) -> None:
    page.clock.install()
    # The service's clock does not move with the page's, so the page must not know it.
    page.context.add_init_script(
        "const { get } = Headers.prototype;"
        "Headers.prototype.get = function (name) { return name === 'Date' ? null : get.call(this, name); };"
    )
    sign_in(page, dashboard, "live")
    live, quiet = api.create(file_name="live"), api.create(file_name="quiet")
    cards = page.locator(".card.session")
    card = cards.filter(has_text="quiet")
    # From here on the page receives events.
    expect(card).to_be_visible()
    other = page.context.new_page()
    sign_in(other, dashboard, f"live/{quiet}")
    expect(other.get_by_text("Nothing was heard yet")).to_be_visible()
    samples, rate = soundfile.read(DOOR, dtype="int16")
    for number in range(4):
        api.put(quiet, number, samples[2 * rate + number * rate // 2 :][: rate // 2].tobytes())
    # All that come; a later window would end the silence.
    expect(page.locator("#counted")).to_contain_text("3 windows")
    bark = other.get_by_role("row").filter(has=other.get_by_role("cell", name="Dog bark", exact=True))
    for shown in (card, other.get_by_role("listitem"), bark):
        expect(shown.filter(has_text="on since")).to_have_count(1)
    page.clock.run_for(40_000)
    expect(card).to_contain_text(re.compile(r"Silent since \d+:\d\d"))
    expect(card).to_have_class(re.compile("stale"))
    expect(other.get_by_role("status").filter(has_text="Silent")).to_have_text(re.compile(r"Silent since \d+:\d\d"))
    # A page that is opened later gets its windows at once, but they did not come now.
    other.reload()
    expect(other.get_by_role("status").filter(has_text="Silent")).to_have_text(re.compile(r"Silent since \d+:\d\d"))
    expect(other.get_by_role("heading", name="Last heard")).to_be_visible()
    expect(bark).to_contain_text("from")
    for tab in (page, other):
        expect(tab.get_by_text("on since")).to_have_count(0)
    for number in range(4):
        api.put(live, number, tone(0.5))
    expect(cards.filter(has_text="live")).not_to_contain_text("Silent since")
    expect(cards.first).to_contain_text("live")
    for session in (live, quiet):
        api.seal(session)


def finished(**services: object) -> dict[str, object]:
    return {"status": "completed", "created_at": "2026-11-22T06:51:02Z", "result": {"metadata": {}, **services}}


@pytest.fixture
def made_up(page: Page) -> dict[str, object]:
    """A job with test content in the service's format."""
    said: dict[str, object] = {}
    page.route("**/api/v1/jobs/made-up", lambda route: route.fulfill(json=said))
    page.route("**/api/v1/jobs/made-up/*", lambda route: route.fulfill(status=404, json={"error": "gone"}))
    return said


def test_one_failure_is_shown_once(page: Page, dashboard: ServiceProcess, made_up: dict[str, object]) -> None:
    made_up |= finished(
        metadata={"warnings": ["audio_insights: written without speech_analysis, which failed"]},
        sound_event_detection=SOUNDS,
        speech_analysis={"status": "error", "error": "its engine does not answer"},
        caption={"status": "error", "error": "speech_analysis failed: there is nothing to write about"},
    )
    sign_in(page, dashboard, "jobs/made-up")
    expect(page.get_by_text("Not analysed: see above.")).to_be_visible()
    expect(page.locator(".problem")).to_have_text(["Speech was not analysed: its engine does not answer"])


def test_place_past_the_end_is_the_end(page: Page, dashboard: ServiceProcess, made_up: dict[str, object]) -> None:
    windows = [{"start_time_sec": 0.5 * n, "end_time_sec": 0.5 * n + 1, "classes": []} for n in range(9)]
    made_up |= finished(sound_event_detection={"status": "success", "results": windows}, speech_analysis=TURNS)
    sign_in(page, dashboard, "jobs/made-up?t=99999")
    place = page.get_by_role("slider", name="Place")
    expect(place).to_have_attribute("aria-valuetext", "0:05.0")
    page.evaluate("location.hash = '#/jobs/made-up?t=3'")
    expect(place).to_have_attribute("aria-valuetext", "0:03.0")
    page.evaluate("location.hash = '#/jobs/made-up?t=77777'")
    expect(place).to_have_attribute("aria-valuetext", "0:05.0")


def test_length_is_shown_only_once_known(
    page: Page, dashboard: ServiceProcess, made_up: dict[str, object], tmp_path: Path
) -> None:
    """While a long recording is analysed, its picture is being drawn, and only the player may know how long it is."""
    recording = door(tmp_path / "door.wav").read_bytes()
    link: list[Route] = []

    def play(route: Route) -> None:
        # Without ranges, a browser may not find the place.
        first = int(route.request.headers.get("range", "bytes=0-").removeprefix("bytes=").split("-")[0])
        said = {"Content-Type": "audio/wav", "Content-Range": f"bytes {first}-{len(recording) - 1}/{len(recording)}"}
        route.fulfill(status=206, headers=said, body=recording[first:])

    made_up |= {**finished(), "status": "processing"}
    page.route("**/api/v1/jobs/made-up/spectrogram?*", lambda route: route.fulfill(status=503, json={"error": "soon"}))
    page.route("**/api/v1/jobs/made-up/stream", hang)
    page.route("**/api/v1/jobs/made-up/audio", lambda route: link.append(route))
    page.route("**/door.wav", play)
    sign_in(page, dashboard, "jobs/made-up?t=3.5")
    expect(page.get_by_text("The picture is being drawn")).to_be_visible()
    place = page.get_by_role("slider", name="Place")
    expect(place).to_have_count(0)
    wait_for(lambda: page.evaluate("true") and link)
    link.pop().fulfill(json={"url": "/door.wav"})
    expect(place).to_have_value("3.5")
    expect(page.get_by_text("0:00.0 to 0:06.7")).to_be_visible()


def test_speaker_has_same_colour_everywhere(page: Page, dashboard: ServiceProcess, made_up: dict[str, object]) -> None:
    turns = [
        {"start_time_sec": 4.0 * n, "end_time_sec": 4.0 * n + 4, "speaker": f"SPEAKER_0{n}", "speaker_name": name}
        | {"transcript": "words"}
        for n, name in enumerate(("Unknown 0", "Unknown 1"))
    ]
    made_up |= finished(speech_analysis={"status": "success", "results": turns})
    sign_in(page, dashboard, "jobs/made-up")
    names = page.locator(".turns strong")
    expect(names).to_have_count(2)
    paint = """() => {
          const canvas = document.querySelector(".timeline canvas");
          const { width } = canvas.getBoundingClientRect();
          const at = (x, y) => [...canvas.getContext("2d").getImageData(x * canvas.width / width, y, 1, 1).data];
          return [at(120 + 0.3 * (width - 120), 11), at(120 + 0.8 * (width - 120), 33)];
        }"""
    written = [names.nth(n).evaluate("one => getComputedStyle(one).color.match(/\\d+/g).map(Number)") for n in (0, 1)]
    assert written[0] != written[1]

    def alike() -> bool:
        # Bars are one tenth transparent. Until the page knows that there is no spectrogram, it is in their place.
        pairs = zip(page.evaluate(paint), written, strict=True)
        return all(abs(one - other) <= 26 for pair in pairs for one, other in zip(*pair, strict=False))

    wait_for(alike)


def test_long_name_does_not_push_table_off_screen(page: Page, dashboard: ServiceProcess) -> None:
    jobs = [
        {"job_id": name, "filename": name, "status": "completed", "seconds": 8, "created_at": "2026-11-22T06:51:02Z"}
        for name in ("n" * 180, "short.wav")
    ]
    page.route("**/api/v1/jobs?*", lambda route: route.fulfill(json={"jobs": jobs}))
    sign_in(page, dashboard, "jobs")
    short = page.get_by_role("row").filter(has_text="short.wav")
    sent = short.get_by_role("cell").last.bounding_box()
    height = short.bounding_box()
    assert sent is not None
    assert height is not None
    assert sent["x"] + sent["width"] <= 1100
    assert height["height"] < 50


def test_recording_positions_and_threshold_trials(page: Page, dashboard: ServiceProcess, tmp_path: Path) -> None:
    """Exact times, links to the current position, and content that is shown but not stored."""
    sign_in(page, dashboard)
    page.get_by_label("Speech").uncheck()
    page.locator("input[type=file]").set_input_files(door(tmp_path / "uneven.wav", 6.4))
    rows = page.get_by_role("row").filter(has=page.get_by_role("button"))
    expect(rows.filter(has_text="Dog bark")).to_be_visible()
    expect(page.get_by_text("The picture is being drawn")).to_have_count(0)
    expect(page.get_by_text("Times are exact to about 1 s")).to_be_visible()
    for text in rows.all_inner_texts():
        begins, ends = re.findall(r"0:(\d\d)(?!\.)", text)
        assert int(begins) < int(ends) <= 6, text
    here = page.url.partition("?")[0]
    playable(page)
    page.evaluate("document.querySelector('audio').currentTime = 4.4")
    expect(page.get_by_role("slider", name="Place")).to_have_value("4.4")
    with copied(page):
        page.get_by_role("button", name="Copy a link to this place").click()
    assert page.evaluate("navigator.clipboard.readText()") == f"{here}?t=4.4"
    page.evaluate("place => { location.href = place }", f"{here}?t=3&from=2&to=4")
    expect(page.get_by_role("slider", name="Place")).to_have_value("3")
    expect(page.get_by_text("0:02.0 to 0:04.0")).to_be_visible()
    assert page.evaluate("document.querySelector('audio').currentTime") == 3
    page.get_by_role("button", name="Try other thresholds").click()
    page.get_by_role("slider", name="Dog bark").fill("0.02")
    expect(page.get_by_text("not the stored result")).to_be_visible()
    with page.expect_download() as kept:
        page.get_by_role("button", name="CSV of the trial").click()
    assert kept.value.suggested_filename == "uneven.trial.csv"
    table = list(csv.DictReader(Path(kept.value.path()).read_text().splitlines()))
    assert table
    assert all(re.fullmatch(r"0\.\d{3}", row["confidence"]) for row in table)
    page.get_by_role("button", name="Show the stored result").click()
    expect(page.get_by_role("button", name="CSV", exact=True)).to_be_visible()
