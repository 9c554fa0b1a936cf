"""Anchors of capture times and notes of sources: which ones a session keeps."""

import msgspec
import pytest

from topics.folding import Arrival, Effect, Step
from topics.sessions.capture import MOST_ANCHORS, MOST_NOTES, PAUSE_MS, TOLERANCE_MS, Anchor
from topics.sessions.commands import NO_SOURCE, TOO_MANY_NOTES, fold_command
from topics.sessions.records import Chunk, Deleted, Opened, Sealed, SessionCommand, SourceNoted
from topics.sessions.rules import SessionHead
from topics.times import HOUR_MS

#: 1,000 bytes a second; a chunk of half a second.
RAW = Opened("c", "stream", "audio/x-raw; rate=1000; format=u8", "p", 1000, 500)
HALF = bytes(500)
BEGUN = 1_796_025_600_000


class Session:
    """A session, its anchors and its accepted notes."""

    def __init__(self, opened: Opened = RAW) -> None:
        self.offset, self.now = 0, BEGUN
        self.head: SessionHead = msgspec.UNSET  # type: ignore[assignment]
        self.anchors: list[Anchor] = []
        self.notes: list[SourceNoted] = []
        self.take(opened)

    def take(self, command: SessionCommand, receipt: object = None, digest: bytes = b"") -> Step[SessionHead]:
        before = None if self.offset == 0 else self.head
        step = fold_command(before, command, Arrival(self.offset, self.now, digest))
        self.offset += 1
        if step.head is not None:
            self.head = step.head
        if Effect.KEEP_ANCHOR in step.effects:
            assert self.head.anchor is not None
            self.anchors.append(self.head.anchor)
        if isinstance(command, SourceNoted) and Effect.KEEP_REQUEST in step.effects:
            self.notes.append(command)
        return step

    def chunk(self, captured: int = 0, data: bytes = HALF) -> None:
        self.take(Chunk("c", self.head.next, data, captured=captured))

    def play(self, count: int, drift: float = 0.0, first: int = BEGUN) -> None:
        """Take chunks in time, captured by a clock that drifts by a share."""
        for number in range(count):
            self.chunk(first + round(500 * number * (1 + drift)))
            self.now += 500

    @property
    def found(self) -> list[tuple[int, int, bool]]:
        return [(one.position_ms, one.at_ms, one.told) for one in self.anchors]


def test_good_clock_makes_one_anchor() -> None:
    session = Session()
    session.play(2 * 3600)
    assert session.found == [(0, BEGUN, True)]


@pytest.mark.parametrize(("off", "count"), [(TOLERANCE_MS, 1), (-TOLERANCE_MS, 1), (TOLERANCE_MS + 1, 2), (-21, 2)])
def test_time_beyond_tolerance_makes_anchor(off: int, count: int) -> None:
    session = Session()
    session.chunk(BEGUN)
    session.chunk(BEGUN + 500 + off)
    assert len(session.anchors) == count


def test_time_holds_from_its_chunk_on_until_the_next() -> None:
    session = Session()
    session.chunk()
    session.chunk(BEGUN + 9000)
    session.chunk()
    session.chunk(BEGUN + 60_000)
    assert session.found == [(500, BEGUN + 9000, True), (1500, BEGUN + 60_000, True)]
    assert session.anchors[-1].at(2250) == BEGUN + 60_750


@pytest.mark.parametrize("drift", [-0.5, -0.001, 0.001, 0.05, 3.0])
def test_drifting_clock_makes_bounded_anchors_near_its_times(drift: float) -> None:
    session = Session()
    minutes = 30
    session.play(minutes * 120, drift)
    assert 2 <= len(session.anchors) <= minutes * MOST_ANCHORS // 2 + MOST_ANCHORS // 2
    for begin in range(0, minutes * 60_000, 500):
        count = sum(begin <= one.position_ms < begin + 60_000 for one in session.anchors)
        assert count <= MOST_ANCHORS
    expected = BEGUN + (session.head.received - 500) * (1 + drift)
    assert session.head.anchor is not None
    assert abs(session.head.anchor.at(session.head.received - 500) - expected) <= abs(drift) * 3500 + TOLERANCE_MS


def test_jumping_clock_makes_bounded_anchors() -> None:
    session = Session()
    for number in range(1000):
        session.chunk(BEGUN + number % 2 * HOUR_MS, bytes(10))
    assert len(session.anchors) <= MOST_ANCHORS


@pytest.mark.parametrize(("late", "count"), [(PAUSE_MS, 0), (PAUSE_MS + 1, 1)])
def test_stream_that_paused_goes_on_when_its_audio_comes(late: int, count: int) -> None:
    session = Session()
    session.now += 500
    session.chunk()
    session.now += 500 + late
    session.chunk()
    assert session.found == [(500, BEGUN + 500 + late, False)][:count]
    session.now += 400
    session.chunk()
    assert len(session.anchors) == count


def test_audio_ahead_of_the_clock_makes_no_anchor() -> None:
    session = Session()
    for _ in range(1000):
        session.chunk()
        session.now += 5
    assert not session.anchors


def test_late_audio_says_nothing_once_a_client_told_a_time() -> None:
    """A spool is hours late; its times are the client's."""
    session = Session()
    session.now += HOUR_MS
    session.chunk(BEGUN)
    session.now += HOUR_MS
    session.chunk()
    assert session.found == [(0, BEGUN, True)]


def test_encoded_audio_files_and_windows_make_no_anchor_by_arrival() -> None:
    for opened, predict in (
        (msgspec.structs.replace(RAW, content_type="audio/wav"), False),
        (msgspec.structs.replace(RAW, content_type="audio/x-raw; rate=0"), False),
        (msgspec.structs.replace(RAW, kind="file"), False),
        (RAW, True),
    ):
        session = Session(opened)
        session.now += HOUR_MS
        session.take(Chunk("c", 0, HALF, predict=predict))
        assert not session.anchors


def test_repeated_and_refused_chunks_change_no_anchor() -> None:
    session = Session()
    session.chunk(BEGUN)
    for sequence, key in ((0, b""), (0, b"k"), (7, b"")):
        session.take(Chunk("c", sequence, HALF, key, captured=BEGUN + HOUR_MS))
    session.take(Sealed("s"))
    session.take(Chunk("c", 1, HALF, captured=BEGUN + HOUR_MS))
    assert session.found == [(0, BEGUN, True)]


# --- notes ----------------------------------------------------------------------------------------------------------


def test_notes_are_counted_and_the_last_is_the_state() -> None:
    session = Session()
    for event in ("source.silent", "source.lost"):
        step = session.take(SourceNoted("n", event, BEGUN - 5))
        assert (step.verdict.status, step.effects) == (204, (Effect.KEEP_REQUEST, Effect.WORK))
    source = session.head.source
    assert source is not None
    assert (source.event, source.at_ms, source.told, source.notes, source.sent) == (
        "source.lost",
        BEGUN - 5,
        True,
        2,
        2,
    )
    assert session.head.command == 0
    assert session.head.touched == BEGUN, "a note is no use of the session"


def test_notes_are_bounded_and_refused_ones_are_counted() -> None:
    session = Session()
    for _ in range(3 * 3600):
        session.take(SourceNoted("n", "source.silent"))
        session.now += 1000
    assert session.head.source is not None
    assert session.head.source.sent == 3 * 3600
    assert MOST_NOTES * 2 - 1 <= len(session.notes) == session.head.source.notes <= MOST_NOTES * 2
    session.take(SourceNoted("n", "source.silent"))
    assert session.take(SourceNoted("n", "source.silent")).verdict == TOO_MANY_NOTES


def test_only_open_streams_have_a_source() -> None:
    session = Session(msgspec.structs.replace(RAW, kind="file"))
    assert session.take(SourceNoted("n", "source.lost")).verdict == NO_SOURCE
    session = Session()
    session.take(Sealed("s"))
    assert session.take(SourceNoted("n", "source.lost")).verdict.status == 403
    session.take(Deleted("d"))
    assert fold_command(None, SourceNoted("n", "source.lost"), Arrival(9, 0)).verdict.status == 404
    assert not session.notes


def test_service_notes_loss_and_return_once_and_only_if_they_are_so() -> None:
    session = Session()
    session.chunk(BEGUN)
    lost = SourceNoted("watch", "source.lost", seen=1)
    session.take(SourceNoted("watch", "source.back", seen=1))
    session.take(SourceNoted("watch", "source.lost", seen=0))
    assert not session.notes, "it is not lost; a chunk came meanwhile"
    for _ in range(2):
        session.take(lost)
    session.chunk()
    for _ in range(2):
        session.take(SourceNoted("watch", "source.back", seen=1))
    assert [one.event for one in session.notes] == ["source.lost", "source.back"]
    session.take(SourceNoted("n", "source.lost"))
    session.take(msgspec.structs.replace(lost, seen=session.head.command))
    assert len(session.notes) == 3, "its client said so"
    assert session.head.source is not None
    assert (session.head.source.sent, session.head.source.notes) == (1, 3)
