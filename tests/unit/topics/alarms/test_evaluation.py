"""Rules of alarms over windows: each kind, times of day, cooldowns, and the same alarms in any split."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topics.alarms.alarms import Alarm, Delivery
from topics.alarms.evaluation import Heard, Standing, Watch, Watched, evaluate, limit, needs_level
from topics.alarms.rules import MOST_A_MINUTE, AlarmRule, StoredRule, TimeOfDay, unused
from topics.alarms.tags import check_tags, classes_of, expanded
from topics.errors import BadRequest
from topics.scores import probability
from topics.sessions.capture import CaptureTime, SourceEvent, SourceNote
from topics.sessions.records import Opened

TAGS = ("Dog", "Cat", "Siren")
CLASSES = {"Animal": ("Dog", "Cat")}
OPENED = Opened("c", "stream", "audio/wav", "p", 1000, 500, file_name="barn", metadata={"floor": "1"})
#: Certainly heard, and certainly not.
YES, NO = 255, 0
BEGINNING = Watched()
BEGAN = int(datetime(2026, 3, 28, 12, tzinfo=UTC).timestamp() * 1000)


def stored(*rules: AlarmRule) -> list[StoredRule]:
    return [StoredRule(f"r{number}", "p", 1, rule) for number, rule in enumerate(rules)]


def rule(tags: str = "Dog", **options: Any) -> AlarmRule:
    """Return a rule without a cooldown or pauses, for some tags, and without the fields that it does not use."""
    fields = {"tags": tuple(tags.split()), "cooldown": 0, "gap": 0, **options}
    return AlarmRule("rule", **{**fields, **unused(options.get("when", "heard"))})


def rows(*heard: str) -> bytes:
    """Return windows from the first letters of the tags that are heard in them."""
    return b"".join(bytes([YES if tag[0] in letters else NO for tag in TAGS]) for letters in heard)


def watch(rules: Sequence[StoredRule], opened: Opened = OPENED, predicts: bool = False) -> Watch:
    return Watch("s", opened, predicts, rules, TAGS, CLASSES)


def time_of(position_ms: int) -> CaptureTime:
    return CaptureTime(BEGAN + position_ms, told=False)


def alarms_of(watched: Watch, heard: Heard, before: Watched = BEGINNING) -> list[Alarm]:
    return evaluate(watched, before, heard, time_of, 7)[1]


def places(*rules: AlarmRule, heard: str, **options: Any) -> list[tuple[int, int]]:
    """Return (start, end) of the alarms in windows given as letters, "-" for none."""
    scores = rows(*(letter.strip("-") for letter in heard))
    return [(one.start_ms, one.end_ms) for one in alarms_of(watch(stored(*rules)), Heard(0, scores, **options))]


# --- kinds ----------------------------------------------------------------------------------------------------------


def test_sound_makes_one_alarm_once_it_has_lasted() -> None:
    assert places(rule(), heard="-DDDD") == [(500, 1500)]
    assert places(rule(duration=2), heard="-DDDD") == [(500, 2500)]
    assert places(rule(duration=3), heard="-DDDD") == []
    assert places(rule("Cat Siren"), heard="-DSDC") == [(1000, 2000)]


def test_pause_up_to_the_gap_does_not_end_a_sound() -> None:
    # The first window ends at 1 s, the one after the pause begins at 1.5 s.
    assert places(rule(duration=2.5, gap=0.5), heard="D--D") == [(0, 2500)]
    assert places(rule(duration=2.5, gap=0.4), heard="D--D") == []
    assert places(rule(gap=0.4), heard="D--D") == [(0, 1000), (1500, 2500)]


def test_absence_counts_from_the_last_sound_and_alarms_once() -> None:
    assert places(rule("Dog Cat", when="absent", duration=2), heard="----S---") == [(0, 2000)]
    assert places(rule("Dog", when="absent", duration=2), heard="-D-------") == [(1000, 3000)]


def test_loud_needs_the_level_alone_and_heard_needs_both() -> None:
    levels = (-30.0, -10.0, None, -30.0, -20.0)
    assert places(rule("", when="loud", level=-20.0), heard="-----", levels=levels) == [(500, 1500), (2000, 3000)]
    assert places(rule("", when="loud", level=-20.0, gap=1), heard="-----", levels=levels) == [(500, 1500)]
    assert places(rule(level=-15.0), heard="DD---", levels=levels) == [(500, 1500)]
    assert places(rule(level=-15.0), heard="DD--") == []
    assert needs_level(stored(rule(level=-15.0)))
    assert not needs_level(stored(rule(level=-15.0, enabled=False)))


def note(number: int, event: SourceEvent, window: int, at_s: int = 0) -> SourceNote:
    return SourceNote(number, event, BEGAN + 1000 * at_s, True, "unplugged", window)


def test_note_of_a_source_makes_an_alarm_in_the_order_of_the_audio() -> None:
    watched = watch(stored(rule("", when="source", events=("source.lost", "source.back"), cooldown=60), rule()))
    notes = [note(0, "source.lost", 1, 1), note(1, "source.back", 1, 2), note(2, "source.back", 2, 3)]
    after, found = evaluate(watched, Watched(), Heard(0, rows("", "D"), notes=notes), time_of, 7)
    assert [(one.sequence, one.what, one.window) for one in found] == [
        (0, "source.lost", 0),
        (1, "source.back", 1),  # Another event than the last one needs no pause.
        (2, "heard", 1),
    ]
    assert (found[0].begins_at, found[0].told, found[0].reason, found[0].start_ms) == (
        BEGAN + 1000,
        True,
        "unplugged",
        500,
    )
    assert after is not None
    assert after.notes == 3
    # Nothing twice, without audio too.
    assert evaluate(watched, after, Heard(0, rows("", "D"), notes=notes), time_of, 7) == (None, [])
    assert evaluate(watched, after, Heard(2, b"", notes=notes), time_of, 7) == (None, [])
    assert len(evaluate(watched, after, Heard(2, b"", notes=[note(3, "source.lost", 2)]), time_of, 7)[1]) == 1


# --- when -----------------------------------------------------------------------------------------------------------


def test_alarm_pauses_for_the_cooldown_then_tells_what_goes_on() -> None:
    """By audio or by the clock, whichever is further: audio pauses, and clocks are wrong."""
    assert places(rule(cooldown=2), heard="D--D--D--D") == [(0, 1000), (3000, 4000)]
    assert places(rule(cooldown=2), heard="D--DDDDDDD") == [(0, 1000), (1500, 3000)]
    watched = watch(stored(rule(cooldown=60)))
    _, found = evaluate(watched, Watched(), Heard(0, rows("D", "", "", "D")), lambda at: CaptureTime(at * 40, True), 7)
    assert len(found) == 2
    _, found = evaluate(watched, Watched(), Heard(0, rows("D", "", "", "D")), lambda at: CaptureTime(-at, True), 7)
    assert len(found) == 1


NIGHT = TimeOfDay("22:00", "06:00", "Europe/Berlin")


@pytest.mark.parametrize(
    ("local", "is_made"),
    [
        ("2026-01-10T21:59:59", False),
        ("2026-01-10T22:00:00", True),
        ("2026-01-11T05:59:59", True),
        ("2026-01-11T06:00:00", False),
        # The clock went forward at 2: the same hour is 4 and 5 UTC.
        ("2026-03-29T05:59:59", True),
        ("2026-03-29T06:00:00", False),
        # It goes back at 3: half past two is there twice.
        ("2026-10-25T02:30:00", True),
        ("2026-10-25T06:00:00", False),
    ],
)
@pytest.mark.parametrize("fold", [0, 1])
def test_time_of_day_goes_past_midnight_and_changes_with_the_clock(local: str, fold: int, is_made: bool) -> None:
    at = datetime.fromisoformat(local).replace(tzinfo=ZoneInfo("Europe/Berlin"), fold=fold)
    at_ms = int(at.timestamp() * 1000)
    watched = watch(stored(rule(during=NIGHT), rule(during=TimeOfDay("06:00", "22:00", "Europe/Berlin"))))
    _, found = evaluate(watched, Watched(), Heard(0, rows("D")), lambda at: CaptureTime(at_ms + at, True), 7)
    assert [one.rule for one in found] == ["r0" if is_made else "r1"]


def test_absence_begins_with_its_time_of_day() -> None:
    at_ms = int(datetime(2026, 1, 10, 21, 59, 59, tzinfo=ZoneInfo("Europe/Berlin")).timestamp() * 1000)
    watched = watch(stored(rule(when="absent", duration=2, during=NIGHT)))
    _, found = evaluate(watched, Watched(), Heard(0, rows(*[""] * 8)), lambda at: CaptureTime(at_ms + at, True), 7)
    assert [(one.start_ms, one.end_ms) for one in found] == [(1000, 3000)]


def test_first_of_the_day_is_the_zones_day() -> None:
    at_ms = int(datetime(2026, 7, 1, 23, 59, 57, tzinfo=ZoneInfo("Asia/Tokyo")).timestamp() * 1000)
    in_tokyo = rule(first_of_day=True, during=TimeOfDay("12:00", "11:59", "Asia/Tokyo"))
    watched = watch(stored(rule(first_of_day=True), in_tokyo))
    heard = Heard(0, rows(*("D" if window % 3 == 0 else "" for window in range(12))))
    _, found = evaluate(watched, Watched(), heard, lambda at: CaptureTime(at_ms + at, True), 7)
    assert [(one.rule, one.start_ms) for one in found] == [("r0", 0), ("r1", 0), ("r1", 3000)]


def test_absurd_times_are_the_first_and_last_day_of_the_calendar() -> None:
    watched = watch(stored(rule(during=NIGHT, first_of_day=True)))
    for at_ms in (-(10**18), 10**18):
        evaluate(watched, Watched(), Heard(0, rows("D")), lambda _, at=at_ms: CaptureTime(at, True), 7)  # type: ignore[misc]


def test_alarms_of_a_minute_are_bounded_and_the_next_one_counts_those_left_out() -> None:
    watched = watch(stored(rule("", when="source", events=("source.lost",))))
    notes = [note(number, "source.lost", 0) for number in range(1000)]
    after, found = evaluate(watched, Watched(), Heard(0, b"", notes=notes), time_of, 7)
    assert len(found) == MOST_A_MINUTE
    assert after is not None
    _, found = evaluate(watched, after, Heard(0, rows(*[""] * 120), notes=[note(1000, "source.lost", 120)]), time_of, 7)
    assert [one.left_out for one in found] == [1000 - MOST_A_MINUTE]


# --- whose ----------------------------------------------------------------------------------------------------------


def test_rule_holds_for_streams_with_its_source_labels_and_tags() -> None:
    heard = Heard(0, rows("D"))

    def counts(opened: Opened = OPENED, **options: Any) -> int:
        return len(alarms_of(watch(stored(rule(**options)), opened), heard))

    assert counts() == counts(source="barn") == counts(labels={"floor": "1"}) == counts(tags="Animal") == 1
    assert counts(source="house") == counts(labels={"floor": "2"}) == counts(labels={"wing": "a"}) == 0
    assert counts(enabled=False) == counts(tags="Unicorn") == counts(msgspec.structs.replace(OPENED, kind="file")) == 0
    # An absence of what the model cannot hear is none.
    assert counts(tags="Unicorn", when="absent", duration=1) == 0


def test_probability_is_the_one_that_readers_see() -> None:
    opened = msgspec.structs.replace(OPENED, default_sensitivity=1, tags_sensitivity={"Cat": -2})
    watched = watch(stored(rule("Dog Cat", probability=0.8)), opened)
    seen = {
        (tag, stored_score): alarms_of(watched, Heard(0, bytes([stored_score if one == tag else 0 for one in TAGS])))
        for tag in ("Dog", "Cat")
        for stored_score in range(256)
    }
    for (tag, score), found in seen.items():
        shown = probability(score, {"Dog": 1, "Cat": -2}[tag])
        assert [one.tags for one in found] == ([((tag, shown),)] if shown >= 0.8 else [])
    assert limit(0.9999, 2) == 255


def test_alarm_tells_what_was_found() -> None:
    destinations = ("d2", "d1", "d2")
    watched = watch(stored(rule("Animal", duration=1.5, destinations=destinations)))
    [found] = alarms_of(watched, Heard(3, rows("D", "DC")), Watched(to=3, next=5))
    best = probability(YES)
    assert found == Alarm(
        *("s", 5, "p", "r0", "rule", "barn", {"floor": "1"}, 4, "heard"),
        *(BEGAN + 1500, BEGAN + 3000, False, 1500, 3000, 7),
        tags=(("Cat", best), ("Dog", best)),
        deliveries=(Delivery("d2", at=7), Delivery("d1", at=7)),
    )
    others = {"window": 5}, {"session": "t"}, {"rule": "r1"}, {"what": "source.lost"}
    assert found.id not in {msgspec.structs.replace(found, **other).id for other in others}


def test_windows_of_predict_follow_one_another() -> None:
    [found] = alarms_of(watch(stored(rule(duration=2)), predicts=True), Heard(0, rows("D", "D")))
    assert (found.start_ms, found.end_ms) == (0, 2000)


def test_changed_rule_begins_anew() -> None:
    first = stored(rule(duration=2, cooldown=600))
    after, found = evaluate(watch(first), Watched(), Heard(0, rows("D", "D", "D")), time_of, 7)
    assert after is not None
    assert len(found) == 1
    changed = [msgspec.structs.replace(first[0], revision=2)]
    assert [one.start_ms for one in alarms_of(watch(changed), Heard(3, rows("D", "D", "D")), after)] == [1500]


def test_nothing_is_written_between_edges() -> None:
    watched = watch(stored(rule(duration=60), rule("Cat", when="absent", duration=60)))
    after, _ = evaluate(watched, Watched(), Heard(0, rows("D")), time_of, 7)
    assert after is not None
    assert evaluate(watched, after, Heard(1, rows(*["D"] * 50)), time_of, 7) == (None, [])
    assert evaluate(watch(stored(rule())), Watched(), Heard(0, rows("", "C")), time_of, 7) == (None, [])


def test_classes_are_the_categories_of_a_model_and_tags_hide_them() -> None:
    found = classes_of([("Dog", "Animal"), ("Cat", "Animal"), ("Music", "Music"), ("Piano", "Music")])
    assert found == {"Animal": ["Dog", "Cat"]}
    assert expanded(("Cat", "Animal", "Unicorn"), TAGS, found) == ("Cat", "Dog")
    check_tags(("Cat", "Animal", "our gate"), TAGS, found, own=("our gate",))
    with pytest.raises(BadRequest, match="tags: 'Cats' is no tag, own sound or class; the nearest one is 'Cat'"):
        check_tags(("Cat", "Cats"), TAGS, found)


# --- any split ------------------------------------------------------------------------------------------------------

SECONDS = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.5])
RULES = st.builds(
    rule,
    tags=st.sampled_from(["Dog", "Cat Siren", "Animal"]),
    when=st.sampled_from(["heard", "absent"]),
    duration=st.sampled_from([0.5, 1.0, 2.0, 3.5]),
    gap=SECONDS,
    cooldown=SECONDS,
    first_of_day=st.booleans(),
    during=st.sampled_from([None, TimeOfDay("12:00", "12:01"), TimeOfDay("12:00", "11:59", "Asia/Tokyo")]),
    level=st.sampled_from([None, -20.0]),
) | st.sampled_from(
    [
        rule("", when="loud", level=-20.0, gap=1.0),
        rule("", when="source", events=("source.lost",), cooldown=3.0),
        rule("", when="source", events=("source.lost", "source.back"), first_of_day=True),
    ]
)
WINDOWS = st.lists(
    st.tuples(
        st.lists(st.sampled_from([0, 127, 128, 255]), min_size=3, max_size=3), st.sampled_from([None, -30.0, -10.0])
    ),
    min_size=1,
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(st.lists(RULES, min_size=1, max_size=5), WINDOWS, st.data())
def test_any_split_and_any_restart_makes_the_same_alarms(
    rules: list[AlarmRule], windows: list[tuple[list[int], float | None]], data: st.DataObject
) -> None:
    """A restart begins with the last row, and makes windows again that were evaluated, but not shown."""
    watched = watch(stored(*rules))
    scores, levels = b"".join(bytes(row) for row, _ in windows), [level for _, level in windows]
    places_of_notes = sorted(data.draw(st.lists(st.integers(0, len(windows)), max_size=6)))
    events: list[SourceEvent] = ["source.lost", "source.back", "source.silent"]
    notes = [note(n, data.draw(st.sampled_from(events)), at, at) for n, at in enumerate(places_of_notes)]

    def take(before: Watched, first: int, stop: int) -> tuple[Watched | None, list[Alarm]]:
        """Evaluate windows with the notes that are known by then."""
        known = [one for one in notes if one.number >= before.notes and one.window <= stop]
        return evaluate(
            watched, before, Heard(first, scores[3 * first : 3 * stop], levels[first:stop], known), time_of, 7
        )

    _, whole = take(Watched(), 0, len(windows))
    state = row = Watched()
    shown, made, changes = 0, dict[int, Alarm](), dict[str, Standing]()
    while shown < len(windows):
        stop = data.draw(st.integers(shown + 1, len(windows)))
        after, found = take(state, shown, stop)
        after = state if after is None else after
        fate = data.draw(st.sampled_from(["shown", "shown", "the row alone", "nothing"]))
        if fate != "nothing":  # Alarms whose row is not there are replaced.
            row = after if found else row
            for alarm in found:
                assert alarm.sequence not in made
                made[alarm.sequence] = alarm
        if fate == "shown":
            shown, state, changes = stop, after, after.changes(row)
        if fate != "shown" or data.draw(st.booleans()):  # A restart.
            state = row if row.to > shown else row.changed(changes)
    assert [made[number] for number in sorted(made)] == whole
    assert sorted(made) == list(range(len(whole)))
    assert len({(one.rule, one.window) for one in whole}) == len(whole)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.booleans(), max_size=60), st.sampled_from([0.0, 0.5, 2.0]), st.sampled_from([0.5, 1.5, 3.0]))
def test_runs_are_those_of_a_plain_search(heard: list[bool], gap: float, duration: float) -> None:
    expected, run = [], list[int]()
    for window, is_heard in enumerate(heard):
        if is_heard:
            if run and 500 * window - (500 * run[-1] + 1000) > 1000 * gap:
                run = []
            was_long = bool(run) and 500 * run[-1] + 1000 - 500 * run[0] >= 1000 * duration
            run.append(window)
            if not was_long and 500 * window + 1000 - 500 * run[0] >= 1000 * duration:
                expected.append((500 * run[0], 500 * window + 1000))
    assert places(rule(gap=gap, duration=duration), heard="".join("D" if one else "-" for one in heard)) == expected
