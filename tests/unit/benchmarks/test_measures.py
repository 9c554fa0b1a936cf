"""Ratios, percentiles, and their rows in the table."""

import pytest

from benchmarks import table
from benchmarks.measures import Row, Sample, alternate, bracket, percentile, ratio_row, value_row


def test_ratio_compares_work_per_cpu_second() -> None:
    ours, bare = Sample(100, seconds=4.0, cpu=2.0, broker=1.0), Sample(300, seconds=3.0, cpu=3.0)
    row = ratio_row("windows", [(ours, bare)] * 3, "windows", 0.6)
    assert row.value == 0.5
    assert row.met is False
    assert row.beside["wall ratio"] == 0.25
    assert row.beside["broker CPU-s per own"] == 0.5


def test_ratio_is_median_of_pairs() -> None:
    bare = Sample(100, 1.0, 1.0)
    row = ratio_row("x", [(Sample(done, 1.0, 1.0), bare) for done in (90, 10, 50)], "reads", 0.5)
    assert (row.value, row.low, row.high, row.met) == (0.5, 0.1, 0.9, True)


def test_contenders_alternate_after_uncounted_warm_up() -> None:
    calls: list[str] = []

    def contender(name: str) -> Sample:
        calls.append(name)
        return Sample(len(calls), 1.0, 1.0)

    pairs = alternate(lambda: contender("a"), lambda: contender("b"), 2)
    assert calls == ["a", "b"] * 3
    assert [(ours.done, bare.done) for ours, bare in pairs] == [(3, 4), (5, 6)]


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1), (0.5, 3), (0.99, 5), (1.0, 5)])
def test_percentile_uses_nearest_rank(share: float, expected: float) -> None:
    assert percentile([5, 3, 1, 4, 2], share) == expected


def test_percentile_of_many_values_is_not_their_largest() -> None:
    assert percentile(range(1, 101), 0.99) == 99


def test_absolute_value_must_not_exceed_bar() -> None:
    assert value_row("start", [3.0, 5.0, 4.0], "s", 4.0).met is True
    assert value_row("start", [4.1], "s", 4.0).met is False
    assert value_row("start", [4.1], "s").met is None


def test_table_line_reports_missed_bar() -> None:
    row = Row("chunks", 0.5, 0.25, 1234.5, bar=0.6, beside={"chunks/s": 99.94})
    assert table.line(row) == "| chunks | 0.50 | 0.25 - 1,234 | ratio | >= 0.60: MISSED | chunks/s 99.9 |"


@pytest.mark.parametrize("edge", [100, 101, 137, 250, 679])
def test_bracket_finds_last_pass_and_first_failure(edge: int) -> None:
    tried: list[int] = []

    def passes(number: int) -> bool:
        tried.append(number)
        return number <= edge

    low, high = bracket(passes, 100, 680, 20, 1.0)
    assert (low, high) == (edge, edge + 1)
    assert len(tried) == len(set(tried)) <= 12
    assert all(100 < number < 680 for number in tried)


def test_bracket_stops_at_try_limit_or_precision() -> None:
    tried: list[int] = []

    def fails(number: int) -> bool:
        tried.append(number)
        return False

    low, high = bracket(fails, 100, 1600, 2, 1.0)
    assert (low, high, tried) == (100, 200, [400, 200])
    low, high = bracket(lambda number: number <= 1000, 100, 10_000, 20, 1.1)
    assert low <= 1000 < high <= 1.1 * low
    assert bracket(lambda number: pytest.fail("tried"), 700, 680, 7, 1.02) == (700, 680)
