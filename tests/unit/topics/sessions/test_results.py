"""The law of results: duplicates, overlaps, gaps, failures, and results of deleted sessions."""

import pytest

from topics.sessions.records import Begun, Cursor, Failed, Scored, SessionResult
from topics.sessions.rules import SessionHead, fold_result

HEAD = SessionHead("stream", None, touched=0, command=5, next=9)


def scored(first: int, chunks: int, *, final: bool = False) -> Scored:
    return Scored(first, "m", b"", Cursor(chunks, keep=max(0, chunks - 1)), final=final)


def after(*results: tuple[SessionResult, int], head: SessionHead = HEAD) -> SessionHead:
    for result, windows in results:
        outcome = fold_result(head, result, windows)
        assert outcome.head is not None
        head = outcome.head
    return head


@pytest.mark.parametrize(
    ("results", "windows", "last"),
    [
        pytest.param([(scored(0, 1), 2), (scored(2, 2), 3)], 5, scored(2, 2), id="windows follow windows"),
        pytest.param([(scored(0, 1), 2), (scored(1, 3), 4)], 5, scored(1, 3), id="an overlap brings its tail"),
        pytest.param(
            [(scored(0, 1), 2), (scored(2, 3), 4), (scored(1, 2), 3)], 6, scored(2, 3), id="a late overlap takes none"
        ),
        pytest.param([(scored(0, 1), 0)], 0, scored(0, 1), id="a record without windows"),
    ],
)
def test_windows_and_cursor_advance(results: list[tuple[SessionResult, int]], windows: int, last: Scored) -> None:
    head = after(*results)
    assert (head.windows, head.cursor, head.finished) == (windows, last.cursor, False)


def test_final_record_finishes_session_permanently() -> None:
    head = after((scored(0, 9, final=True), 2))
    assert head.finished
    assert after((scored(0, 9), 2), head=head).finished


def test_starts_noted_by_earlier_versions_are_ignored() -> None:
    head = after((scored(0, 3), 2))
    assert after((Begun(2, 3, 3, ("a", "b", "c")), 0), head=head) == head
    ended = after((Failed("no audio"), 0), head=head)
    assert after((Begun(2, 3, 3), 0), head=ended) == ended
