"""The operator's views: health, organizations and projects; and the restrictions without a key."""

import re

import pytest
from playwright.sync_api import Page, Request, Route, expect

from tests.dashboard.conftest import MARKUP, sign_in
from tests.process import ADMIN_KEY, KEY, ORG_KEY, ServiceProcess, ask

TIME = "2026-11-22T06:51:02Z"


def test_health_lists_engines_queues_and_partitions(page: Page, dashboard: ServiceProcess) -> None:
    sign_in(page, dashboard, "operator", operator=ADMIN_KEY)
    health = page.locator("section").filter(has=page.get_by_role("heading", name="Health"))
    expect(health.get_by_role("status")).to_contain_text(re.compile("All is well|Something"))
    engines = page.get_by_role("table", name="Engines of")
    for name in ("speech", "caption", "speaker"):
        expect(engines.get_by_role("row").filter(has_text=name).first).to_contain_text("Answers")
    expect(page.get_by_role("table", name="Queues of").get_by_role("row").nth(1)).to_contain_text("of 67 MB")
    for row in page.get_by_role("table", name="Workers of").get_by_role("row").all()[1:]:
        expect(row).to_contain_text(re.compile(r"^\d+● (idle|busy)\d+ %\d+00(all projects|project)"))
    expect(page.get_by_role("table", name="Disks of")).to_contain_text("data")
    page.get_by_text("partitions here serve").click()
    expect(page.get_by_role("table", name="Partitions of").get_by_role("row").nth(1)).to_contain_text("● serving")
    expect(page.get_by_text("None. A record that cannot be read")).to_be_visible()


def test_health_is_polled_only_while_visible(page: Page, dashboard: ServiceProcess) -> None:
    asked: list[Request] = []
    page.on("request", lambda one: asked.append(one) if one.url.endswith("/admin/v1/nodes") else None)
    page.clock.install()
    sign_in(page, dashboard, "operator", operator=ADMIN_KEY)
    expect(page.get_by_text("As of")).to_be_visible()
    with page.expect_response("**/admin/v1/nodes"):
        page.clock.run_for(5000)
    hidden = "hidden => Object.defineProperty(document, 'hidden', { value: hidden, configurable: true })"
    page.evaluate(hidden, True)
    # A question that was due before is still asked.
    page.clock.run_for(1000)
    before = len(asked)
    page.clock.run_for(60_000)
    assert len(asked) == before
    page.evaluate(hidden, False)
    with page.expect_response("**/admin/v1/nodes"):
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def test_problems_are_shown_first(page: Page, dashboard: ServiceProcess) -> None:
    """A missing node, an unserved partition, and records that were set aside, with markup as causes."""
    report = dashboard.operate("GET", "/nodes")
    node = report["nodes"][0]
    parked = {"topic": "t", "partition": 1, "offset": 17, "at": TIME, "cause": f"RecordError: {MARKUP}"}
    node["node"]["parked"] = {"count": 101, "newest": [parked]}
    node["node"]["engines"][0] |= {"reachable": False, "error": MARKUP, "failed_at": TIME}
    worker = {"process": None, "project": MARKUP, "state": "waiting", "busy": 0.0}
    node["node"]["workers"] = [{**worker, "sessions": 0, "waiting": 3, "deaths": 2}]
    node["findings"] = [{"state": "slow", "text": f"101 records {MARKUP}"}]
    silent = [{"state": "bad", "text": "it does not answer"}]
    away = {"url": "http://shed:8000", "state": "bad", "findings": silent, "node": None}
    wrong = {"state": "bad", "partitions": 16, "missing": [3, 4], "nodes": [node, away]}
    page.route("**/admin/v1/nodes", lambda route: route.fulfill(json=wrong))
    sign_in(page, dashboard, "operator", operator=ADMIN_KEY)
    expect(page.get_by_text("Something does not work")).to_be_visible()
    expect(page.get_by_text("No node serves partition 3, 4.")).to_be_visible()
    expect(page.get_by_role("listitem").filter(has_text="http://shed:8000: it does not answer")).to_be_visible()
    expect(page.get_by_role("row").filter(has_text=f"RecordError: {MARKUP}")).to_be_visible()
    waiting = page.get_by_role("row").filter(has_text="none").filter(has_text="waiting")
    expect(waiting).to_contain_text(f"032project {MARKUP}")
    expect(page.get_by_text("101 records could not be read")).to_be_visible()
    expect(page.get_by_text("■ Does not answer")).to_be_visible()
    assert page.locator("main img").count() == 0


def test_organization_is_managed_until_its_deletion(page: Page, dashboard: ServiceProcess) -> None:
    sign_in(page, dashboard, "operator", operator=ADMIN_KEY)
    name = f"Zoo {MARKUP}"
    page.get_by_label("New organization").fill(name)
    page.get_by_label("New organization").press("Enter")
    zoo = page.locator("section").filter(has=page.get_by_role("heading", name=name))
    expect(zoo).to_be_visible()
    once = page.locator("code.key")
    expect(once).to_have_text(re.compile(r"^eso_\w{36}$"))

    zoo.get_by_label("New project").fill("apes")
    zoo.get_by_label("New project").press("Enter")
    row = zoo.get_by_role("row").filter(has_text="apes")
    expect(row).to_contain_text("no limit")
    # Each key stays visible until the operator confirms having stored it.
    expect(once).to_have_text([re.compile(r"^eso_\w{36}$"), re.compile(r"^esp_\w{36}$")])
    key = once.last.inner_text()
    page.get_by_role("button", name="I have kept it").first.click()
    expect(once).to_have_text([key])
    page.get_by_role("button", name="I have kept it").click()
    expect(once).to_have_count(0)
    assert ask("GET", f"{dashboard.url}/api/v1/project", headers={"X-Api-Key": key}).json()["name"] == "apes"

    row.get_by_role("button", name="Set the plan of apes").click()
    row.get_by_label("Seconds").fill("7200")
    row.get_by_role("button", name="Save").click()
    expect(row).to_contain_text("2.0 h")

    row.get_by_role("button", name="New key of apes").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("here at once, on other nodes within a minute")
    dialog.get_by_role("button", name="Make a new key").click()
    expect(once).to_have_text(re.compile(r"^esp_\w{36}$"))
    fresh = once.inner_text()
    assert ask("GET", f"{dashboard.url}/api/v1/project", headers={"X-Api-Key": fresh}).status_code == 200

    row.get_by_role("button", name="Delete apes").click()
    delete = dialog.get_by_role("button", name="Delete")
    expect(delete).to_be_disabled()
    dialog.get_by_role("textbox").fill("ape")
    expect(delete).to_be_disabled()
    dialog.get_by_role("textbox").fill("apes")
    delete.click()
    expect(row).to_have_count(0)

    zoo.get_by_role("button", name="Delete Zoo").click()
    dialog.get_by_role("textbox").fill(name)
    dialog.get_by_role("button", name="Delete").click()
    expect(zoo).to_have_count(0)
    page.get_by_role("button", name="I have kept it").click()
    for secret in (key, fresh):
        assert secret not in page.content() + page.url + dashboard.log.read_text()


def test_usage_is_shown_by_project_and_month(page: Page, dashboard: ServiceProcess) -> None:
    rows = [
        {"month": "2026-11", "project": MARKUP, "service": "sound_event_detection", "jobs": 3, "audio_seconds": 7200.0}
        | {"models": "yamnet@1", "project_id": "p", "organization_id": "o"}
    ]
    asked: list[str] = []

    def usage(route: Route, request: Request) -> None:
        asked.append(request.url)
        route.fulfill(json=rows)

    page.route("**/admin/v1/usage*", usage)
    sign_in(page, dashboard, "operator", operator=ADMIN_KEY)
    expect(page.get_by_role("table", name="Usage").get_by_role("row").nth(1)).to_contain_text("2.0 h")
    with page.expect_request(lambda request: request.url.endswith("/usage?")):
        page.get_by_label("Month").select_option("")
    assert re.search(r"month=\d{4}-\d\d$", asked[0])


def test_view_without_key_names_required_key(page: Page, dashboard: ServiceProcess) -> None:
    """The form follows from one view to the next."""
    views = dict.fromkeys(("try", "jobs", "live", "live/microphone", "project"), "project key")
    for view, key in {**views, "speakers": "organization key", "operator": "operator's key"}.items():
        page.goto(f"{dashboard.url}/dashboard/#/{view}")
        expect(page.get_by_text(f"needs the {key}.")).to_be_visible()
        expect(page.get_by_role("radio", name=key)).to_be_checked()
        page.get_by_role("link", name="Sign in with another key").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Welcome")
        page.go_back()
        expect(page.get_by_text(f"needs the {key}.")).to_be_visible()


def test_missing_operator_interface_is_explained(page: Page, dashboard: ServiceProcess) -> None:
    """As it is by default: no key would open it."""
    page.route("**/admin/v1/**", lambda route: route.fulfill(status=404, json={"error": "not found"}))
    page.goto(f"{dashboard.url}/dashboard/#/operator")
    expect(page.get_by_text("is off here, or has its own address.")).to_be_visible()
    expect(page.get_by_text("EARSHOT_ADMIN_KEY_FILE=admin-key make run")).to_be_visible()
    expect(page.get_by_label("Key", exact=True)).to_have_count(0)
    page.get_by_role("link", name="Sign in with another key").click()
    page.get_by_role("radio", name="Operator's key").check()
    page.get_by_label("Key", exact=True).fill(ADMIN_KEY)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("is off here, or has its own address.")


@pytest.mark.parametrize("view", ["try", "speakers", "operator"])
@pytest.mark.parametrize(
    ("kind", "key", "title"),
    [
        ("Project key", KEY, "Try it"),
        ("Organization key", ORG_KEY, "Speakers"),
        ("Operator's key", ADMIN_KEY, "Operator"),
    ],
)
def test_each_key_leads_to_a_view_that_it_opens(
    page: Page, dashboard: ServiceProcess, view: str, kind: str, key: str, title: str
) -> None:
    """Also where another kind of key was asked for."""
    page.goto(f"{dashboard.url}/dashboard/#/{view}")
    page.get_by_role("radio", name=kind).check()
    page.get_by_label("Key", exact=True).fill(key)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(title)
    expect(page.get_by_label("Key", exact=True)).to_have_count(0)


def test_keys_stay_in_tab(page: Page, dashboard: ServiceProcess) -> None:
    requests: list[Request] = []
    page.on("request", lambda one: requests.append(one))
    keys = {"project": KEY, "organization": ORG_KEY, "operator": ADMIN_KEY}
    sign_in(page, dashboard, "try", **keys)
    for view in ("jobs", "live", "speakers", "project", "models", "operator"):
        page.goto(f"{dashboard.url}/dashboard/#/{view}")
        page.wait_for_load_state("networkidle")
        for key in keys.values():
            assert key not in page.url
            assert key not in page.content()
    assert page.evaluate("localStorage.length + document.cookie.length") == 0
    assert requests
    for key in keys.values():
        assert not [one.url for one in requests if key in one.url]
        assert key not in dashboard.log.read_text()
    # A key is sent only in its header, and only to the service.
    assert {one.url.split("/dashboard")[0] for one in requests if "/dashboard" in one.url} == {dashboard.url}
    assert all(one.url.startswith(dashboard.url) for one in requests)
