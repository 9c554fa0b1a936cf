"""Sentences about sounds whose true times are known: each claim holds on them."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from infra.engines.text.phrases import table
from infra.engines.text.sentences import caption, insights
from tests.unit.infra.engines.scenes import heard
from topics.geometry import SENSE
from topics.scores import CERTAIN

#: A texture, events and a voice; none covers another.
TAGS = ("Rain", "Dog_bark", "Bell", "Thunder", "Speech")
WINDOW, HOP = SENSE.window_ms // 1000, SENSE.hop_ms // 1000
LIKE = "something like "

#: The true times of a tag's sounds, in seconds.
Spans = list[tuple[float, float]]


@st.composite
def recordings(draw: st.DrawFn) -> tuple[int, dict[str, Spans], dict[str, float]]:
    """Return a length, the true times of each tag, with pauses longer than a window, and its highest probability."""
    duration = draw(st.integers(5, 90))
    truth: dict[str, Spans] = {}
    for tag in draw(st.lists(st.sampled_from(TAGS), unique=True, min_size=1)):
        at, truth[tag] = draw(st.floats(0, duration - 1)), []
        while at < duration and len(truth[tag]) < 4:
            end = min(duration, at + draw(st.floats(0.1, 60)))
            truth[tag].append((at, end))
            at = end + draw(st.floats(2 * WINDOW + HOP, 40))
    return duration, truth, {tag: draw(st.sampled_from((0.6, 0.89, 0.9, 0.99))) for tag in truth}


def stretches(duration: int, spans: Spans) -> Spans:
    """Return what a detector that hears everything reports: from the first window of a sound to its last."""
    found: Spans = []
    for start in range(0, duration, HOP):
        end = min(start + WINDOW, duration)
        if any(start < to and since < end for since, to in spans):
            since = found.pop()[0] if found and start < found[-1][1] else start
            found.append((since, end))
    return found


def clauses(text: str, tags: dict[str, Spans]) -> dict[str, str]:
    """Return what is said of each tag, in order, up to the next one."""
    wordings = {tag: (table()[tag].clause, f"{table()[tag].noun} is heard".removeprefix("steady ")) for tag in tags}
    found = sorted((text.find(wording), tag) for tag in tags for wording in wordings[tag] if wording in text)
    ends = [at for at, _ in found[1:]] + [len(text)]
    return {tag: text[at:end].removesuffix(LIKE) for (at, tag), end in zip(found, ends, strict=True)}


def seconds(text: str) -> float:
    units = {"min": 60, "s": 1}
    return sum(float(number) * units[unit] for number, unit in re.findall(r"([\d.]+) (min|s)", text))


def overlap(some: Spans, others: Spans) -> bool:
    return any(start < to and since < end for start, end in some for since, to in others)


def check_time(clause: str, spans: Spans, duration: int) -> None:
    """Check that the clause's time encloses all sounds."""
    first, last, total = spans[0][0], spans[-1][1], sum(end - start for start, end in spans)
    time = r"((?:\d+ min ?)?(?:[\d.]+ s)?)"
    if "throughout" in clause:
        assert total >= 0.9 * duration - 2 * WINDOW
    if match := re.search(f"in the (first|last) {time}", clause):
        assert last <= seconds(match[2]) if match[1] == "first" else first >= duration - seconds(match[2])
    if match := re.search(f"between {time} and {time}", clause):
        assert seconds(match[1]) <= first
        assert last <= seconds(match[2])
    if match := re.search(f"around {time}", clause):
        assert abs((first + last) / 2 - seconds(match[1])) <= WINDOW


@settings(max_examples=200, deadline=None)
@given(recordings())
def test_claims_hold_on_true_times(made: tuple[int, dict[str, Spans], dict[str, float]]) -> None:
    duration, truth, peaks = made
    scene = heard(duration, *((tag, *one, peaks[tag]) for tag in truth for one in stretches(duration, truth[tag])))
    text = caption(scene)
    text = text[0].lower() + text[1:]
    said = clauses(text, truth)
    assert said
    for number, (tag, clause) in enumerate(said.items()):
        assert (table()[tag].clause in text) is (peaks[tag] >= CERTAIN)
        check_time(clause, truth[tag], duration)
        if re.search("more than once|several times|on and off", clause):
            assert len(truth[tag]) > 1
        before = list(said)[:number]
        if number and said[before[-1]].endswith("then "):
            assert all(truth[tag][0][0] >= truth[one][-1][1] for one in before)
        if number and said[before[-1]].endswith("while "):
            assert all(overlap(truth[tag], truth[one]) for one in before)
    if match := re.search(f" over ({LIKE})?(steady )?rain", text):
        check_time("throughout", truth["Rain"], duration)
        assert (match[1] is None) is (peaks["Rain"] >= CERTAIN)
    place = insights(scene).primary_sound_environment
    if match := re.search("mostly (.+?)(,|$)", place):
        (most,) = (tag for tag in truth if table()[tag].noun.removeprefix("steady ") == match[1])
        assert sum(end - start for start, end in truth[most]) >= duration / 2
        assert peaks[most] >= CERTAIN
