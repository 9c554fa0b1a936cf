"""The rows of real-time streams, from made-up samples."""

import pytest

from benchmarks.cases import paced
from benchmarks.measures import Sample


def bare() -> Sample:
    return Sample(1000, seconds=9.0, cpu=1.0)


def test_cost_row_compares_window_cost_with_bare() -> None:
    ours = Sample(200, seconds=4.0, cpu=0.5, latencies=(5.0,) * 98 + (70.0,) * 2, load=0.2)
    row = paced._cost_row("cost", [(ours, bare())], 2.0)
    assert (row.value, row.met) == (2.5, False)
    assert row.beside["ms a window"] == 2.5
    assert row.beside["p99 ms"] == 70.0
    assert row.beside["of the load"] == 0.05


@pytest.mark.parametrize(("edge", "in_time"), [(300, True), (40, False)])
def test_carried_row_compares_stream_count_with_bare(edge: int, in_time: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})

    def ours(streams: int) -> Sample:
        late = 100.0 if streams <= edge else 100.1
        return Sample(streams, 1.0, 1.0, latencies=(5.0,) * 98 + (late,) * 2)

    row = paced._carried_row("carried", ours, bare, in_time, 0.1)
    # A process on each of two cores, 1000 windows per CPU-second each, two windows a second per stream.
    assert row.beside["bare streams"] == 1000.0
    assert row.beside["streams"] <= edge < row.beside["too many"] <= 1.05 * row.beside["streams"]
    assert (row.value, row.high) == (row.beside["streams"] / 1000, row.beside["too many"] / 1000)
    assert row.met is in_time
