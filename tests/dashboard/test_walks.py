"""Walks through the dashboard in a real browser, from the first click to the last."""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Dialog, Page, Route, expect

from tests.contract.api import Api, tone
from tests.dashboard.conftest import DOOR, PATIENCE, door, for_everybody, link, playable, sign_in
from tests.process import ADMIN_KEY, KEY, ORG_KEY, ServiceProcess, ask
from tests.waiting import wait_for

VIEWS = ["try", "jobs", "live", "live/microphone", "alarms", "speakers", "project", "models", "operator", "sign-in"]


def test_link_signs_in_once(page: Page, dashboard: ServiceProcess) -> None:
    once = link(dashboard)
    page.goto(once)
    expect(page.get_by_role("heading", name="Try it")).to_be_visible()
    page.reload()
    expect(page.get_by_role("heading", name="Try it")).to_be_visible()
    page.goto(f"{dashboard.url}/dashboard/#/project")
    expect(page.get_by_text("No limit")).to_be_visible()
    page.evaluate("sessionStorage.clear()")
    page.goto(once)
    expect(page.get_by_role("alert")).to_contain_text("this link was used already")
    assert KEY not in page.content()


def test_uploaded_file_is_analysed_and_explored(page: Page, dashboard: ServiceProcess) -> None:
    sign_in(page, dashboard)
    survives(page)
    row = page.get_by_role("row").filter(has_text="Dog bark")
    expect(row).to_be_visible()
    expect(page).to_have_title("door.ogg · Earshot")
    expect(page.get_by_text("is being drawn")).to_have_count(0)
    wait_for(lambda: len(colours(page)) > 50)  # a spectrogram has many
    playable(page)
    row.get_by_role("button").click()
    expect(page).to_have_url(re.compile(r"t=2\.0"))
    wait_for(lambda: page.evaluate("document.querySelector('audio').currentTime > 2.2"))
    page.get_by_role("group", name="Picture of the recording").press(" ")
    wait_for(lambda: page.evaluate("document.querySelector('audio').paused"))
    # It may have played beyond the bark.
    page.get_by_role("slider", name="Place").fill("2.5")
    page.get_by_role("button", name="Zoom in").click()
    expect(page).to_have_url(re.compile(r"from=.*&to="))
    there = page.url
    page.reload()
    expect(row).to_have_class("now")
    expect(page.get_by_text(re.compile(r"^0:0\d\.\d to 0:0\d\.\d$"))).to_be_visible()
    assert page.url == there
    assert KEY not in page.content()
    wait_for(lambda: page.evaluate(f"document.querySelector('audio')?.src.startsWith('{dashboard.url}/api/v1/jobs/')"))
    page.get_by_role("button", name="Try other thresholds").click()
    slider = page.get_by_role("slider", name="Dog bark")
    slider.fill("0.995")
    expect(row).to_have_count(0)
    page.get_by_role("button", name="Back to 50 %").click()
    expect(row).to_be_visible()
    with page.expect_download() as kept:
        page.get_by_role("button", name="JSON").click()
    assert "sound_event_detection" in json.loads(Path(kept.value.path()).read_text())
    with page.expect_download() as kept:
        page.get_by_role("button", name="CSV").click()
    assert "Dog_bark" in Path(kept.value.path()).read_text()
    page.get_by_role("button", name="Copy as curl").click()
    assert KEY not in page.evaluate("navigator.clipboard.readText()")
    other = page.context.new_page()
    other.goto(there)
    expect(other.locator("audio")).to_be_visible()
    expect(other.get_by_text("is being drawn")).to_have_count(0)
    page.goto(f"{dashboard.url}/dashboard/#/jobs?state=completed")
    # Other tests send recordings with the same name.
    page.locator(f"a[href='{there.partition('?')[0].partition('/dashboard/')[2]}']").click()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page).to_have_url(re.compile("#/jobs$"))
    page.goto(there)
    expect(page.get_by_role("alert")).to_contain_text("was deleted")
    other.get_by_role("button", name="Zoom in").click()
    expect(other.get_by_role("alert")).to_contain_text("was deleted")


def survives(page: Page) -> None:
    """Send a recording, look at other pages meanwhile, and come back; a reload has to be confirmed."""
    held: list[Route] = []
    asked: list[str] = []

    def stay(dialog: Dialog) -> None:
        asked.append(dialog.type)
        dialog.dismiss()

    page.route("**/api/v1/analyze_file", lambda route: held.append(route))
    hear(page, DOOR)
    sending = page.get_by_text("Sending door.ogg")
    expect(sending).to_be_visible()
    page.get_by_role("link", name="Models").click()
    expect(page.get_by_role("heading", name="In use")).to_be_visible()
    page.get_by_role("link", name="Try it").click()
    expect(sending).to_be_visible()
    page.once("dialog", stay)
    page.evaluate("() => { location.reload() }")
    wait_for(lambda: page.evaluate("true") and asked == ["beforeunload"])
    page.get_by_role("link", name="Models").click()
    wait_for(lambda: page.evaluate("true") and held)
    held.pop().continue_()
    # Whoever is back before it was sent is led to the job. The browser asks until then.
    wait_for(lambda: page.evaluate("dispatchEvent(new Event('beforeunload', { cancelable: true }))"))
    expect(page.get_by_role("heading", name="In use")).to_be_visible()
    page.get_by_role("link", name="Try it").click()
    expect(sending).to_have_count(0)
    page.get_by_role("link", name="See what is in it").click()


def hear(page: Page, recording: Path) -> None:
    """Recognise a recording's sounds, but not its speech."""
    page.get_by_label("Speech").uncheck()
    page.locator("input[type=file]").set_input_files(recording)


def colours(page: Page) -> list[int]:
    found: list[int] = page.evaluate(
        """() => {
          const canvas = document.querySelector(".timeline canvas");
          const { data } = canvas.getContext("2d").getImageData(canvas.width / 2, 0, canvas.width / 4, 100);
          return [...new Set(new Uint32Array(data.buffer))];
        }"""
    )
    return found


def test_sign_out_forgets_what_was_sent(page: Page, dashboard: ServiceProcess) -> None:
    held: list[Route] = []
    page.route("**/api/v1/analyze_file", lambda route: held.append(route))
    sign_in(page, dashboard)
    hear(page, DOOR)
    expect(page.get_by_text("Sending door.ogg")).to_be_visible()
    page.get_by_role("link", name="Models").click()
    wait_for(lambda: page.evaluate("true") and held)
    with page.expect_response("**/api/v1/analyze_file"):
        held.pop().fulfill(json={"job_id": "made-up"})
    page.get_by_role("button", name="Sign out").click()
    page.evaluate("key => sessionStorage.setItem('earshot.project', key)", dashboard.key)
    page.get_by_role("link", name="Try it", exact=True).click()
    expect(page.locator("input[type=file]")).to_be_attached()
    expect(page.get_by_text("was sent")).to_have_count(0)


def test_drop_that_cannot_be_sent_is_refused(page: Page, dashboard: ServiceProcess) -> None:
    sent: list[str] = []
    page.on("request", lambda one: sent.append(one.url) if one.method == "POST" else None)
    sign_in(page, dashboard)
    drop = """(label, names) => {
      const dataTransfer = new DataTransfer();
      for (const name of names) dataTransfer.items.add(new File(["audio"], name));
      label.dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true }));
    }"""
    place = page.locator("label.drop")
    place.evaluate(drop, ["one.ogg", "two.ogg"])
    expect(page.get_by_role("alert")).to_contain_text("one recording at a time")
    for name in ("Sounds", "Speech"):
        page.get_by_label(name).uncheck()
    place.evaluate(drop, ["one.ogg"])
    expect(page.get_by_role("alert")).to_contain_text("choose what to look for first")
    assert sent == []


def test_click_on_picture_plays_from_there(page: Page, dashboard: ServiceProcess) -> None:
    sign_in(page, dashboard)
    hear(page, DOOR)
    expect(page.get_by_role("row").filter(has_text="Dog bark")).to_be_visible()
    playable(page)
    canvas = page.locator(".timeline canvas")
    box = canvas.bounding_box()
    assert box is not None
    canvas.click(position={"x": 120 + (box["width"] - 120) / 2, "y": 50})
    wait_for(lambda: page.evaluate("document.querySelector('audio').currentTime > 3.5"))
    expect(page).to_have_url(re.compile(r"t=3\.[34]"))
    page.evaluate("document.querySelector('audio').pause()")
    picture = page.get_by_role("group", name="Picture of the recording")
    picture.press("+")
    picture.press("+")
    expect(page).to_have_url(re.compile("from="))
    picture.press("ArrowRight")
    near = page.url
    picture.press("-")
    expect(page).not_to_have_url(near)
    picture.press("0")
    expect(page).not_to_have_url(re.compile("from="))
    canvas.hover(position={"x": 600, "y": 50})
    page.keyboard.down("Control")
    page.mouse.wheel(0, -300)
    page.keyboard.up("Control")
    expect(page).to_have_url(re.compile("from="))
    page.get_by_label("Speed").select_option("2")
    assert page.evaluate("document.querySelector('audio').playbackRate") == 2
    for width in (1100, 360, 320):
        page.set_viewport_size({"width": width, "height": 740})
        for_everybody(page)


def test_click_on_word_seeks_to_it(page: Page, dashboard: ServiceProcess) -> None:
    sign_in(page, dashboard)
    page.get_by_label("Sounds").uncheck()
    page.get_by_label("Speech").check()
    page.locator("input[type=file]").set_input_files(DOOR)
    word = page.locator(".word").nth(3)
    expect(word).to_be_visible(timeout=60_000)
    begins = float(word.get_attribute("data-at") or 0)
    word.click()
    wait_for(lambda: page.evaluate(f"document.querySelector('audio').currentTime >= {begins}"))
    expect(page).to_have_url(re.compile(rf"t={begins:.1f}"))


def test_audio_is_kept_only_if_enabled(page: Page, dashboard: ServiceProcess) -> None:
    made = dashboard.project("forgetful")
    sign_in(page, dashboard, project=made)
    hear(page, DOOR)
    row = page.get_by_role("row").filter(has_text="Dog bark")
    expect(row).to_be_visible()
    expect(page.get_by_text("is not kept")).to_be_visible()
    assert page.locator("audio").count() == 0
    row.get_by_role("button").click()
    expect(page.get_by_role("slider", name="Place")).to_have_value("2")
    page.get_by_role("link", name="Keep the audio").click()
    with page.expect_response(lambda answer: answer.request.method == "PATCH", timeout=PATIENCE):
        page.get_by_label("Keep it").select_option("3600")
    page.reload()
    expect(page.get_by_label("Keep it")).to_have_value("3600")
    page.goto(f"{dashboard.url}/dashboard/#/try")
    hear(page, DOOR)
    expect(page.locator("audio")).to_be_visible()


def test_unplayable_recording_is_still_analysed(page: Page, dashboard: ServiceProcess, tmp_path: Path) -> None:
    sign_in(page, dashboard)
    hear(page, door(tmp_path / "door.aiff"))
    expect(page.get_by_text("cannot play recordings of this kind")).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="Dog bark")).to_be_visible()
    expect(page.get_by_text("is being drawn")).to_have_count(0)
    wait_for(lambda: len(colours(page)) > 50)


def test_microphone_recording_is_analysed(page: Page, dashboard: ServiceProcess) -> None:
    sign_in(page, dashboard)
    page.get_by_label("Speech").uncheck()
    page.get_by_role("button", name="Record", exact=True).click()
    expect(page.get_by_role("timer")).to_have_text(re.compile(r"0:(0[5-9]|[1-5]\d)"))
    page.get_by_role("button", name="Stop and analyse").click()
    expect(page.get_by_role("row").filter(has_text="Dog bark")).to_be_visible()


def test_wrong_key_is_reported(page: Page, dashboard: ServiceProcess) -> None:
    page.goto(f"{dashboard.url}/dashboard/#/project")
    page.get_by_label("Key", exact=True).fill("no key of anybody")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_have_text(
        "This is no valid project key. If it is another kind of key, choose that above."
    )
    page.get_by_label("Key", exact=True).fill(KEY)
    page.get_by_label("Key", exact=True).press("Enter")
    expect(page.get_by_text("Last used")).to_be_visible()
    expect(page.get_by_role("heading", level=1)).to_be_focused()
    page.get_by_role("button", name="Sign out").click()
    assert page.evaluate("sessionStorage.length") == 0


def test_pasted_key_is_recognised_by_its_prefix(page: Page, dashboard: ServiceProcess) -> None:
    """Even if a blank was copied with it, and another kind of key is chosen."""
    organization = dashboard.operate("POST", "/organizations", json={"name": "pasted"})["key"]
    for made, view in (organization, "speakers"), (dashboard.project("pasted"), "try"):
        page.goto(f"{dashboard.url}/dashboard/#/sign-in")
        page.get_by_role("radio", name="Operator's key").check()
        page.get_by_label("Key", exact=True).fill(f" {made}")
        page.get_by_role("button", name="Sign in").click()
        expect(page).to_have_url(re.compile(f"#/{view}$"))
        page.get_by_role("button", name="Sign out").click()


def test_new_key_is_shown_once(page: Page, dashboard: ServiceProcess) -> None:
    made = dashboard.project("rotated")
    sign_in(page, dashboard, "project", project=made)
    page.get_by_role("button", name="Make a new key").click()
    expect(page.get_by_role("dialog")).to_contain_text("stops working")
    page.get_by_role("dialog").get_by_role("button", name="Make a new key").click()
    shown = page.locator("code.key")
    expect(shown).to_have_text(re.compile(r"^esp_\w{36}$"))
    fresh = shown.inner_text()
    page.reload()
    expect(page.get_by_text(f"esp_…{fresh[-4:]}")).to_be_visible()
    assert fresh not in page.content()
    assert fresh not in page.url
    assert fresh not in dashboard.log.read_text()


def test_signing_out_ends_pass(page: Page, dashboard: ServiceProcess) -> None:
    page.goto(link(dashboard))
    expect(page.get_by_role("heading", name="Try it")).to_be_visible()
    passed = page.evaluate("sessionStorage.getItem('earshot.project')")

    def status() -> int:
        return ask("GET", f"{dashboard.url}/api/v1/project", headers={"X-Api-Key": passed}).status_code

    assert status() == 200
    page.get_by_role("button", name="Sign out").click()
    wait_for(lambda: status() == 401)


def test_rotating_key_after_link_sign_in_requires_current_key(page: Page, dashboard: ServiceProcess) -> None:
    made = dashboard.project("linked")
    page.goto(dashboard.command("link", "linked").strip())
    expect(page.get_by_role("heading", name="Try it")).to_be_visible()
    page.goto(f"{dashboard.url}/dashboard/#/project")
    for present in ("", made):
        page.get_by_role("button", name="Make a new key").click()
        page.get_by_label("The current key").fill(present)
        page.get_by_role("dialog").get_by_role("button", name="Make a new key").click()
        expect(page.locator("code.key")).to_have_count(1 if present else 0)
    expect(page.locator("code.key")).to_have_text(re.compile(r"^esp_\w{36}$"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_is_accessible_and_fits_phone(page: Page, dashboard: ServiceProcess, api: Api, scheme: str) -> None:
    """axe finds nothing, and nothing is wider than a phone, or a screen at 400 %."""
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.set_viewport_size({"width": 320, "height": 740})
    sign_in(page, dashboard, project=KEY, organization=ORG_KEY, operator=ADMIN_KEY)
    for view in VIEWS:
        page.goto(f"{dashboard.url}/dashboard/#/{view}")
        page.wait_for_load_state("networkidle")
        for_everybody(page)
    session = api.create()
    api.put(session, 0, tone(2.0))
    page.goto(f"{dashboard.url}/dashboard/#/live/{session}")
    expect(page.get_by_role("heading", name="Now")).to_be_visible()
    page.get_by_text("Windows", exact=True).click()
    for_everybody(page)
    api.seal(session)
