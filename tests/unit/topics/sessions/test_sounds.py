"""When a sound is on."""

import random

from topics.sessions.sounds import SoundRule, SoundRules, SoundTracker


def rules(rule: SoundRule, first: int = 0, **by_name: SoundRule) -> SoundRules:
    return SoundRules(first, "c", rule, by_name)


def run(rule: SoundRule, windows: str, hop_ms: int = 500, *later: SoundRules) -> list[tuple[bool, int, int]]:
    """Return the begins and ends of one sound; `x` is a window that reports it."""
    tracker, found = SoundTracker([rules(rule), *later]), []
    for number, one in enumerate(windows):
        start = number * hop_ms
        reported = [("Dog_bark", 0.5 + number / 100)] if one == "x" else []
        found += [(one.is_on, one.start_ms, one.end_ms) for one in tracker.take(number, start, start + 1000, reported)]
    return [*found, *((one.is_on, one.start_ms, one.end_ms) for one in tracker.finish())]


def test_default_rule_starts_at_once_and_ends_after_silence() -> None:
    assert run(SoundRule(), ".x.x..x") == [
        (True, 500, 1500),
        (False, 500, 2500),
        (True, 3000, 4000),
        (False, 3000, 4000),
    ]


def test_rule_requires_n_of_m_windows() -> None:
    rule = SoundRule(2, 3, 500)
    assert run(rule, "x..x..x") == []
    assert run(rule, "x.x....") == [(True, 0, 2000), (False, 0, 2000)]
    assert run(SoundRule(3, 3), "xx.xx.xxx") == [(True, 3000, 5000), (False, 3000, 5000)]


def test_margin_joins_close_sounds() -> None:
    assert run(SoundRule(margin_ms=3000), "x....x......") == [(True, 0, 1000), (False, 0, 3500)]
    assert len(run(SoundRule(margin_ms=2000), "x....x......")) == 4


def test_each_sound_has_own_rule_and_peak_probability() -> None:
    tracker = SoundTracker([rules(SoundRule(), Siren=SoundRule(2, 2))])
    assert [one.name for one in tracker.take(0, 0, 1000, [("Siren", 0.9), ("Dog_bark", 0.6)])] == ["Dog_bark"]
    assert [one.name for one in tracker.take(1, 500, 1500, [("Siren", 0.7), ("Dog_bark", 0.8)])] == ["Siren"]
    assert [(one.name, one.probability) for one in tracker.finish()] == [("Dog_bark", 0.8), ("Siren", 0.9)]


def test_tracker_remembers_nothing_past_horizon() -> None:
    """A tracker that begins after this many quiet windows equals one that has seen all."""
    chance = random.Random(3)
    for _ in range(300):
        of = chance.randint(1, 5)
        rule = SoundRule(chance.randint(1, of), of, chance.choice((0, 500, 700, 2500)))
        before = "".join(chance.choice("x..") for _ in range(12)) + "." * rule.horizon(500)
        after = "".join(chance.choice("x.") for _ in range(12))
        shift = 500 * len(before)
        late = [(on, start + shift, end + shift) for on, start, end in run(rule, after)]
        assert run(rule, before + after)[-len(late) :] == late or not late
        assert len(run(rule, before + after)) == len(late) + len(run(rule, before))


def test_new_rule_applies_from_its_window() -> None:
    wide = rules(SoundRule(margin_ms=3000), 2)
    assert run(SoundRule(), "x....x......", 500, wide) == run(SoundRule(margin_ms=3000), "x....x......")
    assert run(SoundRule(), "x..x....x...", 500, wide) == [(True, 0, 1000), (False, 0, 5000)]
    strict = rules(SoundRule(2, 2), 3)
    assert run(SoundRule(), "x..x..xx", 500, strict)[:2] == [(True, 0, 1000), (False, 0, 1000)]
    assert run(SoundRule(), "x..x..xx", 500, strict)[2:] == [(True, 3000, 4500), (False, 3000, 4500)]
    assert run(SoundRule(), "x..x..xx", 500, strict, rules(SoundRule(), 3)) == run(SoundRule(), "x..x..xx")
