"""From a stream to a false alarm, as a user would: destination, rule, alarm, judgement."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import soundfile
from playwright.sync_api import Browser, Page, expect

from earshot_client import Client, SessionOptions
from tests.contract.api import RAW, Api, silence
from tests.dashboard.conftest import DOOR, for_everybody, receiver, sign_in
from tests.process import KEY, ServiceProcess
from tests.waiting import wait_for

#: A name without a place to break it.
HOME = "home-".ljust(60, "W")
PHONE = {"width": 360, "height": 740}


@pytest.fixture
def hook() -> Iterator[tuple[str, list[Any]]]:
    with receiver() as made:
        yield made


def test_yesterday_may_have_23_hours(browser: Browser, dashboard: ServiceProcess) -> None:
    context = browser.new_context(timezone_id="Europe/Berlin")
    page = context.new_page()
    page.clock.set_fixed_time("2026-03-30T00:30:00+02:00")
    page.goto(f"{dashboard.url}/dashboard/")
    days = page.evaluate(
        "import('/dashboard/heat-map.js').then(({ dayAgo, dayQuery }) => [1, 2].map((ago) => dayQuery(dayAgo(ago))))"
    )
    context.close()
    assert days == ["day=2026-03-29&offset_minutes=120", "day=2026-03-28&offset_minutes=60"]


def test_stream_rule_alarm_false_alarm(
    page: Page, dashboard: ServiceProcess, api: Api, hook: tuple[str, list[Any]]
) -> None:
    url, got = hook
    sign_in(page, dashboard, "alarms")
    expect(page.get_by_text("No rules yet")).to_be_visible()
    page.get_by_role("button", name="Add a destination").click()
    page.get_by_label("Send to").select_option("webhook")
    page.get_by_label("Name").fill(HOME)
    page.get_by_label("Address").fill("http://10.1.2.3/hook")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("10.1.2.3")
    page.get_by_label("Address").fill(url)
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_text(re.compile(r"^whsec_"))).to_be_visible()
    page.get_by_role("button", name="I have kept it").click()
    assert "whsec_" not in page.content()
    page.get_by_role("button", name=f"Send a test message to {HOME}").click()
    expect(page.get_by_text("The test message was delivered")).to_be_visible()

    page.get_by_role("button", name="Add a rule").click()
    page.get_by_label("Name").fill("dog")
    page.get_by_label("Sound or class").fill("no such sound")
    expect(page.get_by_text("The model knows no sound like")).to_be_visible()
    page.get_by_label("Sound or class").fill("dog bark")
    page.get_by_label("Labels").fill("floor=1, place=a=b")
    page.get_by_role("checkbox", name=HOME).check()
    page.get_by_role("button", name="Test it on what was heard yesterday").click()
    expect(page.get_by_text("It would have made 0 alarms yesterday")).to_be_visible()
    for_everybody(page)
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    for_everybody(page)
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text(f"Dog bark, from 50 %, floor: 1, place: a=b. Sent to {HOME}.")).to_be_visible()

    samples, rate = soundfile.read(DOOR, dtype="int16")
    session = api.create(
        content_type=f"audio/x-raw; rate={rate}; format=s16le",
        file_name="Front door",
        metadata={"floor": "1", "place": "a=b"},
    )
    api.send(session, samples.tobytes())
    alarm = page.get_by_role("list", name="Alarms").get_by_role("listitem").filter(has_text="Front door")
    expect(alarm).to_contain_text("Dog bark")
    expect(alarm).to_contain_text("floor: 1")
    expect(alarm).to_contain_text(f"{HOME}: delivered")
    for_everybody(page)
    assert [one["data"]["rule"]["name"] for one in got] == ["test", "dog"]
    assert all(one["signed"].startswith("v1,") for one in got)
    # A changed rule begins anew, also on the last windows of a stream.
    api.seal(session)
    wait_for(lambda: api.results(session).json()["state"] == "done")
    alarm.get_by_role("button", name=re.compile(f"Send again to {HOME}")).click()
    alarm.get_by_role("checkbox", name=re.compile("False alarm: dog")).press(" ")
    expect(page.get_by_text("Marked as false: 1 of 1 alarm.")).to_be_visible()
    page.get_by_role("button", name=re.compile("^Use 9")).click()
    expect(page.get_by_text(re.compile(r"Dog bark, from 9\d(\.\d+)? %,"))).to_be_visible()
    page.reload()
    expect(alarm.get_by_role("checkbox")).to_be_checked()
    source_is_lost(page, dashboard)
    page.get_by_role("button", name="Switch off dog").click()
    expect(page.get_by_role("button", name="Switch on dog")).to_be_visible()
    for name in "camera", "dog", HOME:
        page.get_by_role("button", name=f"Delete {name}").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        expect(page.get_by_role("button", name=f"Delete {name}")).to_have_count(0)
    assert len(got) == 3
    assert got[1]["data"]["id"] == got[2]["data"]["id"]


def source_is_lost(page: Page, dashboard: ServiceProcess) -> None:
    """Add a rule for lost sources, lose one, and see its state and its alarm."""
    page.get_by_role("button", name="Add a rule").click()
    form = page.get_by_role("form", name="New rule")
    form.get_by_label("Name").fill("camera")
    form.get_by_label("For, seconds").fill("5")  # Not sent, as a rule for sources uses none.
    form.get_by_label("Alarm if").first.select_option("source")
    form.get_by_role("checkbox", name="it is lost").check()
    form.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Source lost. Sent nowhere.")).to_be_visible()
    options = SessionOptions("stream", RAW, file_name="Barn", metadata={"animals": "cows"})
    with Client(dashboard.url, KEY) as client, client.socket(options) as socket:
        sources = page.get_by_role("region", name="Sources").get_by_role("listitem").filter(has_text="Barn")
        socket.send(silence(1.0))
        expect(sources).to_contain_text("animals: cows")
        expect(sources).to_contain_text("no fault")
        socket.source("source.lost", "the camera does not answer")
        socket.send(silence(1.0))
        expect(sources).to_contain_text("Source lost since")
        alarm = page.get_by_role("list", name="Alarms").get_by_role("listitem").filter(has_text="Barn")
        expect(alarm).to_contain_text("the camera does not answer")
        for_everybody(page)
        socket.source("source.back")
        expect(sources).to_contain_text("no fault")
        socket.end()
    expect(sources).to_have_count(0)
