"""The dashboard as somebody walks through it, from the first click to the last, in a real browser."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.dashboard.conftest import DOOR, link
from tests.process import ADMIN_KEY, KEY, ORG_KEY, ServiceProcess

VIEWS = ["try", "jobs", "live", "live/microphone", "speakers", "project", "models", "operator", "sign-in"]


def sign_in(page: Page, service: ServiceProcess | SimpleNamespace, view: str = "try", **keys: str) -> None:
    """Begin at a view with keys in the tab."""
    keys = keys or {"project": KEY, "organization": ORG_KEY}
    page.goto(f"{service.url}/dashboard/#/models")
    page.evaluate(
        "keys => { for (const [kind, key] of Object.entries(keys)) sessionStorage.setItem(`earshot.${kind}`, key) }",
        keys,
    )
    page.goto(f"{service.url}/dashboard/#/{view}")
    page.reload()


def test_the_link_signs_in_once(page: Page, dashboard: ServiceProcess) -> None:
    page.goto(link(dashboard))
    expect(page.get_by_role("heading", name="Try it")).to_be_visible()
    page.reload()
    expect(page.get_by_role("heading", name="Try it")).to_be_visible()
    page.goto(f"{dashboard.url}/dashboard/#/project")
    expect(page.get_by_text("Any amount")).to_be_visible()
    page.evaluate("sessionStorage.clear()")
    page.goto(link(dashboard))
    expect(page.get_by_role("alert")).to_contain_text("this link was used already")
    assert KEY not in page.content()


def test_a_file_and_what_is_in_it(page: Page, dashboard: ServiceProcess) -> None:
    sign_in(page, dashboard)
    page.get_by_label("Speech").uncheck()
    page.locator("input[type=file]").set_input_files(DOOR)
    row = page.get_by_role("row").filter(has_text="Dog bark")
    expect(row).to_be_visible()
    row.get_by_role("button").click()
    expect(page).to_have_url(re.compile(r"t=2\.0"))
    expect(page.get_by_role("slider", name="Place")).to_have_value("2")
    there = page.url
    page.reload()
    expect(row).to_have_class("now")
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
    page.goto(f"{dashboard.url}/dashboard/#/jobs?state=completed")
    page.get_by_role("link", name="door.ogg").first.click()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page).to_have_url(re.compile("#/jobs$"))
    page.goto(there)
    expect(page.get_by_role("alert")).to_contain_text("was deleted")


def test_a_recording_of_the_microphone(page: Page, dashboard: ServiceProcess) -> None:
    sign_in(page, dashboard)
    page.get_by_label("Speech").uncheck()
    page.get_by_role("button", name="Record", exact=True).click()
    expect(page.get_by_role("timer")).to_have_text("0:05")
    page.get_by_role("button", name="Stop and analyse").click()
    expect(page.get_by_role("row").filter(has_text="Dog bark")).to_be_visible()


def test_a_wrong_key_is_told(page: Page, dashboard: ServiceProcess) -> None:
    page.goto(f"{dashboard.url}/dashboard/#/project")
    page.get_by_label("Key", exact=True).fill("no key of anybody")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("Invalid API key")
    page.get_by_label("Key", exact=True).fill(KEY)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("Last used")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    assert page.evaluate("sessionStorage.length") == 0


def test_a_new_key_is_shown_once(page: Page, dashboard: ServiceProcess) -> None:
    made = json.loads(dashboard.command("projects", "create", "rotated", "--json"))["key"]
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


def test_the_operator_makes_a_project(page: Page, dashboard: ServiceProcess) -> None:
    sign_in(page, dashboard, "operator", operator=ADMIN_KEY)
    expect(page.get_by_text("Ready.")).to_be_visible()
    page.get_by_label("New organization").fill("Zoo <b>")
    page.get_by_label("New organization").press("Enter")
    expect(page.get_by_role("heading", name="Zoo <b>")).to_be_visible()
    expect(page.get_by_text("Its key, shown this once")).to_be_visible()


def test_a_voice_from_its_first_sample_to_its_removal(page: Page, dashboard: ServiceProcess) -> None:
    sign_in(page, dashboard, "speakers")
    expect(page.get_by_text("Nobody is registered yet")).to_be_visible()
    page.get_by_label("Name").fill("Kim")
    files = page.locator("input[type=file]")
    files.nth(0).set_input_files(DOOR.with_name("kim.ogg"))
    row = page.get_by_role("row").filter(has_text="Kim")
    expect(row).to_contain_text(re.compile(r"Kim1, 8 syes"))
    files.nth(1).set_input_files(DOOR.with_name("meeting.ogg"))
    expect(page.get_by_role("listitem").filter(has_text="Kim").first).to_contain_text(
        re.compile(r"0:00\.\d Kim \(0\.\d\d\)")
    )
    row.get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(page.get_by_text("Nobody is registered yet")).to_be_visible()


def test_markup_shows_as_text(page: Page, dashboard: ServiceProcess, tmp_path: Path) -> None:
    name = "<img src=x onerror=alert(1)>.ogg"
    shutil.copy(DOOR, tmp_path / name)
    sign_in(page, dashboard)
    page.get_by_label("Speech").uncheck()
    page.locator("input[type=file]").set_input_files(tmp_path / name)
    expect(page.locator(".title strong")).to_have_text(name)


def test_framing_is_refused(page: Page, dashboard: ServiceProcess) -> None:
    page.goto(f"{dashboard.url}/dashboard/#/models")
    answer = page.request.get(f"{dashboard.url}/dashboard/")
    assert answer.headers["x-frame-options"] == "DENY"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_is_for_everybody(page: Page, dashboard: ServiceProcess, scheme: str) -> None:
    """No finding of axe, and nothing wider than a telephone."""
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.set_viewport_size({"width": 360, "height": 740})
    sign_in(page, dashboard, project=KEY, organization=ORG_KEY, operator=ADMIN_KEY)
    for view in VIEWS:
        page.goto(f"{dashboard.url}/dashboard/#/{view}")
        page.wait_for_load_state("networkidle")
        found = Axe().run(page)
        assert found.violations_count == 0, f"{view}: {found.generate_report()}"
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, view
