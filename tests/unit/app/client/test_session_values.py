"""Runs: every sound of every window is in exactly one run, and runs end with the sound."""

from hypothesis import given
from hypothesis import strategies as st

from earshot_client import Event, Run, Runs, Tag

WINDOWS = st.lists(st.dictionaries(st.sampled_from(["Dog_bark", "Speech", "Siren"]), st.floats(0.5, 1)), max_size=12)


def event(number: int, tags: dict[str, float]) -> Event:
    named = tuple(Tag(name, probability) for name, probability in (tags or {"Others": 0.0}).items())
    return Event(number / 2, number / 2 + 1, named)


def joined(windows: list[dict[str, float]]) -> list[Run]:
    runs = Runs()
    return [run for number, tags in enumerate(windows) for run in runs.add(event(number, tags))] + runs.close()


def test_consecutive_windows_form_run_with_best_score() -> None:
    assert joined([{}, {"Dog_bark": 0.6}, {"Dog_bark": 0.93}, {"Dog_bark": 0.7}, {}, {"Dog_bark": 0.5}]) == [
        Run("Dog_bark", 0.5, 2.5, 0.93),
        Run("Dog_bark", 2.5, 3.5, 0.5),
    ]


def test_run_ends_at_first_window_without_sound() -> None:
    runs = Runs()
    assert runs.add(event(0, {"Siren": 0.8})) == []
    assert runs.add(event(1, {"Speech": 0.8})) == [Run("Siren", 0, 1, 0.8)]
    assert runs.close() == [Run("Speech", 0.5, 1.5, 0.8)]
    assert runs.close() == []


@given(WINDOWS)
def test_runs_cover_the_windows_exactly(windows: list[dict[str, float]]) -> None:
    covered = [
        (run.name, number)
        for run in joined(windows)
        for number in range(round(run.start * 2), round((run.end - 1) * 2) + 1)
    ]
    assert sorted(covered) == sorted((name, number) for number, tags in enumerate(windows) for name in tags)
