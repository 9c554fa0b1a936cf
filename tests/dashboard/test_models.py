"""The models in use: their tags, the evidence for points, and the effect of sensitivity."""

import re

from playwright.sync_api import Page, expect

from tests.process import ServiceProcess


def test_models_and_their_evidence_are_shown(page: Page, dashboard: ServiceProcess) -> None:
    page.goto(f"{dashboard.url}/dashboard/#/models")
    models = page.get_by_role("table", name="Models")
    expect(models.get_by_role("row").filter(has_text="yamnet-ced@")).to_contain_text("521 classes, as 118 sounds")
    expect(models.get_by_role("row").filter(has_text="whisper-base@")).to_contain_text("words")
    page.get_by_role("searchbox").fill("dog")
    sounds = page.get_by_role("table", name="Sounds")
    expect(sounds.get_by_role("row").filter(has_text="Dog bark")).to_contain_text(re.compile(r"\d+ %\d+ of \d+"))
    expect(page.get_by_text(re.compile(r"^\d of 118 sounds"))).to_be_visible()
    page.get_by_role("searchbox").fill("a sound of no model")
    expect(page.get_by_text("No sound of this model matches")).to_be_visible()


def test_unmeasured_sound_has_no_figures(page: Page, dashboard: ServiceProcess) -> None:
    tag = {"category": "Test", "point": 0.5, "clips": 0, "figures": None}
    model = {
        "id": "own@1-2", "kind": "sound-events", "name": "own", "version": "1", "licence": "MIT", "source": "",
        "sha256": "0" * 64, "sample_rate": 16000, "window_seconds": 1.0, "hop_seconds": 0.5, "classes": 1,
        "how_measured": None, "recordings": None, "tags": [{"name": "<b>Clank", **tag}],
    }  # fmt: skip
    page.route("**/api/v1/models", lambda route: route.fulfill(json={"models": [model], "sensitivity_logits": 0.7}))
    page.goto(f"{dashboard.url}/dashboard/#/models")
    row = page.get_by_role("table", name="Sounds").get_by_role("row").nth(1)
    expect(row).to_contain_text("<b>Clank")
    expect(row).to_contain_text("no figures for this sound")
    expect(row).to_contain_text("other sounds alone")


def test_sensitivity_moves_point(page: Page, dashboard: ServiceProcess) -> None:
    page.goto(f"{dashboard.url}/dashboard/#/models")
    page.get_by_role("combobox").select_option("Dog_bark")
    rows = page.get_by_role("table", name="Sensitivity").get_by_role("row")
    points = [float(rows.nth(number).get_by_role("cell").first.inner_text()) for number in range(1, 6)]
    assert points == sorted(points)
    slider = page.get_by_role("slider")
    slider.fill("0.01")
    expect(rows.nth(3)).to_contain_text("not reported")
    slider.fill("0.99")
    expect(rows.nth(5)).not_to_contain_text("not reported")
    # At the point itself the displayed probability is one half.
    slider.fill(f"{points[2]:.2f}")
    expect(rows.nth(3)).to_contain_text(re.compile(r"as (49|50|51) %"))
