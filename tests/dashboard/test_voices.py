"""Voices: five sentences by the microphone, faults of a recording, and samples of another model."""

import re

import pytest
from playwright.sync_api import Page, Route, expect

from tests.dashboard.conftest import DOOR, MARKUP, sign_in
from tests.process import ORG_KEY, ServiceProcess

#: Kim's voice, by the microphone.
HEARD = DOOR.with_name("kim.ogg")


def answer(data: object, error: str = "") -> dict[str, object]:
    return {"data": None if error else data, "error": error, "debug": ""}


def entry(speaker: str, samples: int, is_compatible: bool = True) -> dict[str, object]:
    times = {"total_length": 4.0, "created_at": "2026-11-22T06:51:02Z"}
    return {"speaker": speaker, "samples": samples, "is_compatible": is_compatible, **times}


def record_nothing(page: Page, button: str) -> None:
    """Record and stop at once, in the page, because a slow machine would record enough before a click."""
    page.evaluate(
        """() => {
          const end = (_, watch) => {
            const done = [...document.querySelectorAll("button")].find((one) => one.textContent === "Done");
            if (!done) return;
            watch.disconnect();
            done.click();
          };
          new MutationObserver(end).observe(document.body, { subtree: true, childList: true });
        }"""
    )
    page.get_by_role("button", name=button, exact=True).click()


def record(page: Page, button: str, seconds: int = 3) -> None:
    """Record a sentence of at least `seconds`."""
    page.get_by_role("button", name=button, exact=True).click()
    expect(page.get_by_role("timer")).to_have_text(re.compile(rf"0:(0[{seconds}-9]|[1-3]\d)"))
    page.get_by_role("button", name="Done").click()


def test_five_recorded_sentences_register_speaker(page: Page, dashboard: ServiceProcess) -> None:
    sign_in(page, dashboard, "speakers")
    expect(page.get_by_text("Nobody is registered yet")).to_be_visible()
    begin = page.get_by_role("button", name="Record pair 1")
    expect(begin).to_be_disabled()
    expect(page.get_by_text("Enter a name first.")).to_be_visible()
    expect(page.get_by_label("Name")).to_have_attribute("maxlength", "100")
    page.get_by_label("Name").fill(" ")
    expect(begin).to_be_disabled()
    page.get_by_label("Name").fill("Kim Müller")
    expect(page.get_by_text("Programs know this voice as Kim_Muller.")).to_be_visible()
    record_nothing(page, "Record pair 1")
    expect(page.get_by_role("listitem").filter(has_text="too short")).to_be_visible()
    record(page, "Record pair 1 again")
    for number in range(2, 6):
        expect(page.get_by_text(f"{number} of 5")).to_be_visible()
        record(page, f"Record pair {number}")
    # Record one of them again: the others stay.
    page.get_by_role("button", name="Record pair 3 anew").click()
    record(page, "Record pair 3")
    page.get_by_role("button", name="Register Kim Müller").click()
    expect(page.get_by_text("Kim Müller is registered with five samples.")).to_be_visible()
    row = page.get_by_role("row").filter(has_text="Kim")
    expect(row).to_contain_text(re.compile(r"Kim MüllerKim_Muller5, \d+ s● yes"))
    page.locator("input[type=file]").nth(1).set_input_files(HEARD)
    turn = re.compile(r"0:00\.\d\s*Kim Müller \(0\.\d\d\)")
    expect(page.get_by_role("listitem").filter(has_text=turn)).to_be_visible()
    page.get_by_role("link", name="Try it").click()
    page.get_by_label("Sounds").uncheck()
    page.get_by_label("Speech").check()
    page.locator("input[type=file]").set_input_files(HEARD)
    expect(page.locator(".turns strong").first).to_have_text("Kim Müller")
    page.get_by_role("link", name="Speakers").click()
    row.get_by_role("button", name="Remove Kim Müller").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(page.get_by_text("Kim Müller was removed.")).to_be_visible()


def test_any_name_gets_one_of_the_interface(page: Page, dashboard: ServiceProcess) -> None:
    page.route("**/api/v2/speakers", lambda route: route.fulfill(json=answer([entry("Muller", 1)])))
    sign_in(page, dashboard, "speakers", organization=ORG_KEY)
    names = {"Anna Maria": "Anna_Maria", "Müller": "Muller_2", "Straße 7": "Strasse_7", "李雷": "voice", "Łódź!": "odz"}
    for shown, plain in names.items():
        page.get_by_label("Name").fill(shown)
        expect(page.locator("#name-rule code")).to_have_text(plain)
    page.get_by_label("Name").fill("Muller")
    expect(page.locator("#name-rule")).to_have_text("Muller is registered: what you record is added.")


@pytest.mark.parametrize(
    ("level", "seconds", "fault"),
    [
        ("() => 3000 * Math.sin(i++ / 8)", 3, None),
        ("() => 3000 * Math.sin(i++ / 8)", 1, "too short"),
        ("() => 100 * Math.sin(i++ / 8)", 3, "too quiet"),
        ("() => Math.max(-32768, Math.min(32767, 40000 * Math.sin(i++ / 8)))", 3, "clipped"),
        ("() => 0", 3, "too quiet"),
    ],
)
def test_recording_faults_are_detected(
    page: Page, dashboard: ServiceProcess, level: str, seconds: int, fault: str | None
) -> None:
    page.goto(f"{dashboard.url}/dashboard/#/models")
    found = page.evaluate(
        f"""async seconds => {{
          const {{ faultOf }} = await import("./five-prompts.js");
          let i = 0;
          return faultOf(Array.from({{ length: 2 * seconds }}, () => new Int16Array(8000).map({level})));
        }}""",
        seconds,
    )
    assert (found is None) if fault is None else found.startswith(fault)


def test_closed_microphone_delivers_nothing(page: Page, dashboard: ServiceProcess) -> None:
    page.goto(f"{dashboard.url}/dashboard/#/models")
    late = page.evaluate(
        """async () => {
          const { openMicrophone } = await import("./microphone.js");
          let blocks = 0;
          const microphone = await openMicrophone(() => { blocks += 1; });
          while (!blocks) await new Promise((resolve) => setTimeout(resolve, 50));
          // A page that has much to do: what the microphone hears meanwhile waits.
          for (const until = Date.now() + 1500; Date.now() < until; );
          microphone.close();
          const before = blocks;
          await new Promise((resolve) => setTimeout(resolve, 500));
          return blocks - before;
        }"""
    )
    assert late == 0


def test_failed_registration_resumes_without_resending(page: Page, dashboard: ServiceProcess) -> None:
    sent = 0

    def voice(route: Route) -> None:
        nonlocal sent
        sent += 1
        error = "the audio holds too little speech" if sent == 3 else ""
        route.fulfill(json=answer(entry("Kim", sent), error))

    page.route("**/api/v2/voice", voice)
    sign_in(page, dashboard, "speakers", organization=ORG_KEY)
    page.get_by_label("Name").fill("Kim")
    for number in range(1, 6):
        record(page, f"Record pair {number}", 2)
    page.get_by_role("button", name="Register Kim").click()
    expect(page.get_by_role("alert")).to_contain_text("too little speech")
    expect(page.get_by_role("listitem").filter(has_text="registered")).to_have_count(2)
    page.get_by_role("button", name="Register Kim").click()
    expect(page.get_by_text("Kim is registered with five samples.")).to_be_visible()
    assert sent == 6, "what was registered is not sent twice"


def test_samples_of_another_model_can_be_reenrolled(page: Page, dashboard: ServiceProcess) -> None:
    """Names are letters now; markup stored by another version shows as text."""
    name, fits = MARKUP, False

    def again(route: Route) -> None:
        nonlocal fits
        fits = True
        route.fulfill(json=answer({"speaker": name, "done": 2, "left": 1}))

    page.route("**/api/v2/speakers", lambda route: route.fulfill(json=answer([entry(name, 3, fits)])))
    page.route("**/api/v2/speaker/re-enroll*", again)
    sign_in(page, dashboard, "speakers", organization=ORG_KEY)
    row = page.get_by_role("row").filter(has_text=name)
    expect(row).to_contain_text("another model made them")
    expect(page.get_by_text("1 of 1 registered voices were made with another one")).to_be_visible()
    page.get_by_role("button", name="Re-enrol all").click()
    expect(page.get_by_text("1 do not, because")).to_be_visible()
    expect(row).to_contain_text("● yes")
    expect(page.get_by_role("button", name="Re-enrol all")).to_have_count(0)
    assert page.locator("main img").count() == 0
