"""The law of a session, compared with an independent model of the specification's table under random histories."""

import random
from itertools import product
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.unit.topics.sessions.session_model import Model
from topics.choices import SoundRule
from topics.folding import Arrival, Effect, Receipt, Step
from topics.sessions.analysis_rules import continues, grown
from topics.sessions.commands import TABLE, fold_command, foresee, state_of
from topics.sessions.records import (
    Chunk,
    Cursor,
    Deleted,
    Expired,
    Failed,
    Metered,
    NewWindows,
    Opened,
    Sealed,
    SessionCommand,
    SessionKind,
    Tuned,
)
from topics.sessions.rows import Block, Newest, stored, whole
from topics.sessions.rules import SessionHead, SessionState
from topics.sessions.sounds import STARTED, SoundRules, SoundTracker
from topics.times import HOUR_MS

MOMENTS = st.sampled_from([0, 1, 500, HOUR_MS])
PAYLOADS = st.sampled_from([b"", b"a", b"bb", b"cccc"])
KEYS = st.sampled_from([b"", b"", b"k1", b"k2"])
GONE = (Effect.CANCEL, Effect.DROP_AUDIO, Effect.ERASE)


class Session(RuleBasedStateMachine):
    """One session id under any history of commands and time."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.head: SessionHead | None = None
        self.now = 1_000_000
        self.offset = 0
        self.receipts: dict[int, Receipt] = {}
        #: Every earlier head of the session: the edge may have judged a command by any of them before appending it.
        self.earlier: list[SessionHead | None] = []

    def apply(
        self, command: SessionCommand, expected: int, digest: bytes = b"", receipt: Receipt | None = None
    ) -> Step[SessionHead]:
        before = self.head
        step = fold_command(before, command, Arrival(self.offset, self.now, digest, receipt))
        assert step.verdict.status == expected, (command, step.verdict)
        assert (step.verdict.error is None) == (expected < 300)
        self._no_refusal_was_rash(command, step)
        self._head_is_sane(command, before, step)
        self.head = step.head
        self.offset += 1
        if not isinstance(command, Opened):
            self.earlier.append(step.head)
        return step

    def _no_refusal_was_rash(self, command: SessionCommand, step: Step[SessionHead]) -> None:
        """Whichever earlier head the edge used: the fold also refuses what the edge would refuse."""
        for head in [*self.earlier, self.head] if self.earlier else [self.head]:
            foreseen = foresee(head, command)
            assert foreseen is None or step.verdict.error is not None, (head, command)
        now = foresee(self.head, command)
        assert now is None or now.status == step.verdict.status

    def _head_is_sane(self, command: SessionCommand, before: SessionHead | None, step: Step[SessionHead]) -> None:
        if before is not None and step.head is not None:
            assert step.head.command in (before.command, self.offset)
            if step.head.state is SessionState.DELETED:
                # It keeps nothing of the session.
                kept = SessionHead(before.kind, None, step.head.touched, step.head.command, finished=True, derived=True)
                assert step.head == msgspec.structs.replace(kept, state=SessionState.DELETED)
                return
            assert step.head.next >= before.next
            assert step.head.received >= before.received
            assert not (before.state is SessionState.READONLY and step.head.state is SessionState.WRITABLE)
        if step.verdict.error is not None:
            assert step.head is before or (step.head is None and isinstance(command, Expired))

    # --- commands ---------------------------------------------------------------------------------------------------

    @initialize(kind=st.sampled_from(["stream", "file"]), total=st.sampled_from([None, 1, 4, 7]), derived=st.booleans())
    def first(self, kind: SessionKind, total: int | None, derived: bool) -> None:
        # Unknown ids answer 404 to everything except their creation.
        for command in (Chunk("c", 0, b"a"), Sealed("c"), Deleted("c"), Expired("c", -1, 0)):
            self.apply(command, 404)
        self.earlier.clear()
        self.model.derived = derived
        opened = Opened("c", kind, "audio/wav", "p", 1000, 500, total, derived=derived)
        step = self.apply(opened, self.model.open(kind, total, self.now))
        assert step.effects == (Effect.KEEP_REQUEST, Effect.WATCH)

    @precondition(lambda self: self.model.state != "forgotten")
    @rule(kind=st.sampled_from(["stream", "file"]))
    def open_again(self, kind: SessionKind) -> None:
        step = self.apply(Opened("c", kind, "audio/wav", "p", 1000, 500), self.model.open(kind, None, self.now))
        assert step.effects == ()

    @rule(milliseconds=MOMENTS)
    def wait(self, milliseconds: int) -> None:
        self.now += milliseconds

    @rule(ahead=st.integers(-2, 2) | st.none(), data=PAYLOADS, key=KEYS, predict=st.booleans())
    def chunk(self, ahead: int | None, data: bytes, key: bytes, predict: bool) -> None:
        sequence = None if ahead is None else max(0, self.model.next + ahead)
        self.upload(sequence, data, key, predict)

    @rule(data=PAYLOADS)
    def next_chunk(self, data: bytes) -> None:
        self.upload(self.model.next, data, b"k1", self.model.uses == "predict")

    @precondition(lambda self: self.model.keyed)
    @rule(choice=st.randoms(use_true_random=False), other=st.booleans())
    def repeat(self, choice: Any, other: bool) -> None:
        """A client repeats a request after a lost answer, or sends other bytes under the same key."""
        sequence = choice.choice(sorted(self.model.keyed))
        key, data = self.model.keyed[sequence]
        self.upload(sequence, data + b"!" if other else data, key, self.model.uses == "predict")

    def upload(self, sequence: int | None, data: bytes, key: bytes, predict: bool) -> None:
        model, before = self.model, self.head
        writable, had = model.state == "writable", model.next
        expected = model.chunk(sequence, data, key, predict, self.now)
        known = self.receipts.get(sequence) if key and sequence is not None else None
        step = self.apply(Chunk("c", sequence, data, key, predict), expected, data, known)
        if model.next == had:
            assert step.effects == ()
            if expected == 200:
                assert step.head is before
                assert step.verdict.next == (sequence or 0) + 1
            return
        assert writable
        assert step.verdict.next == model.next
        assert step.effects[0] is Effect.KEEP_AUDIO
        assert (Effect.KEEP_RECEIPT in step.effects) == (bool(key) and sequence is not None)
        # A stream is analysed as it arrives, a file once it is complete.
        assert (Effect.WORK in step.effects) == (model.kind == "stream" or model.state == "readonly")
        if key and sequence is not None:
            self.receipts[had] = Receipt(key, data)

    @rule()
    def seal(self) -> None:
        was = self.model.state
        step = self.apply(Sealed("c"), self.model.seal())
        assert (step.effects == (Effect.WORK,)) == (was == "writable")

    @rule(really=st.sampled_from([False, False, False, True]))
    def delete(self, really: bool) -> None:
        if really:
            step = self.apply(Deleted("c"), self.model.delete(self.now))
            assert step.effects == GONE

    @rule(due=st.integers(0, 10), ago=st.integers(0, 2))
    def expire(self, due: int, ago: int) -> None:
        before = self.model.state
        seen = -1 if self.head is None else self.head.command
        step = self.apply(Expired("sweep", seen - ago, due), self.model.expire(self.now, came_since=ago > 0))
        after = self.model.state
        assert Effect.UNWATCH in step.effects
        assert (Effect.ERASE in step.effects) == (after != before or after == "forgotten")
        # A session that lives on stays watched, and so does a tombstone.
        assert (Effect.WATCH in step.effects) == (after != "forgotten")

    # --- invariants -------------------------------------------------------------------------------------------------

    @invariant()
    def the_law_and_the_model_agree(self) -> None:
        names = {
            SessionState.ABSENT: ("none", "forgotten"),
            SessionState.DELETED: ("deleted",),
            SessionState.WRITABLE: ("writable",),
            SessionState.READONLY: ("readonly",),
        }
        assert self.model.state in names[state_of(self.head)]
        if self.head is not None:
            assert self.head.touched == self.model.last
            if self.model.exists:
                assert (self.head.next, self.head.received) == (self.model.next, self.model.received)

    @invariant()
    def what_was_deleted_is_gone_for_ever(self) -> None:
        if self.model.state in ("deleted", "forgotten"):
            for command in (Chunk("c", 0, b"a"), Chunk("c", None, b"a"), Sealed("c"), Deleted("c")):
                assert fold_command(self.head, command, Arrival(self.offset, self.now)).verdict.status == 404
                assert foresee(self.head, command) is not None


TestSession = Session.TestCase


def test_table_covers_exactly_every_command_in_every_state() -> None:
    assert TABLE.keys() == {*product(SessionState, get_args(SessionCommand))}


@pytest.mark.parametrize("billed", [False, True])
def test_tombstone_is_removed_after_an_hour_and_billing(billed: bool) -> None:
    head: SessionHead | None
    head = head_after(msgspec.structs.replace(FILE, derived=True), Sealed("c"))
    head = grown(head, NewWindows(0, "m", b"s", Cursor(0, 0), final=True, tags=1), 0)
    if billed:
        head = fold_command(head, Metered("ledger", 1), Arrival(2, 0)).head
    head = fold_command(head, Deleted("c"), Arrival(2, 1)).head
    assert head is not None
    assert (head.windows, head.unmetered) == ((0, False) if billed else (1, True))
    head = fold_command(head, Expired("sweep", 2, 0), Arrival(3, HOUR_MS + 2)).head
    if not billed:
        assert fold_command(head, FILE, Arrival(4, HOUR_MS + 2)).verdict.status == 409
        head = fold_command(head, Metered("ledger", 1), Arrival(5, 0)).head
    assert head is None


def test_session_creation_is_never_rejected_beforehand() -> None:
    assert foresee(None, Opened("c", "stream", "audio/wav", "p", 1000, 500)) is None


def head_after(*commands: SessionCommand) -> SessionHead:
    head = None
    for offset, command in enumerate(commands):
        head = fold_command(head, command, Arrival(offset, 0)).head
    assert head is not None
    return head


FILE = Opened("c", "file", "audio/wav", "p", 1000, 500)


def test_file_is_in_progress_from_first_chunk() -> None:
    assert not head_after(FILE).in_progress
    assert head_after(FILE, Chunk("c", 0, b"a")).in_progress
    assert head_after(FILE, Sealed("c")).in_progress


HEAD = SessionHead("stream", None, touched=0, command=5, next=9)


def made(first: int, count: int, chunks: int, *, final: bool = False) -> NewWindows:
    return NewWindows(first, "m", bytes(count), Cursor(chunks, keep=max(0, chunks - 1)), final, 1)


def test_windows_and_cursor_advance() -> None:
    head = HEAD
    for new in (made(0, 2, 1), made(2, 3, 2), made(5, 0, 2)):
        assert continues(head, new)
        head = grown(head, new, 7)
    assert (head.windows, head.cursor, head.finished, head.analysed_at) == (5, Cursor(2, 1), False, 7)
    assert grown(head, made(5, 0, 9, final=True), 8).finished


@pytest.mark.parametrize("new", [made(1, 2, 3), made(4, 1, 3), made(3, 1, 1)], ids=["overlap", "gap", "older cursor"])
def test_only_windows_that_follow_continue_session(new: NewWindows) -> None:
    assert not continues(grown(HEAD, made(0, 3, 2), 0), new)


def test_late_failure_does_not_change_finished_session() -> None:
    finished = grown(HEAD, made(0, 2, 9, final=True), 0)
    failed = Failed("analysis", "a former owner's worker died three times", 2)
    assert fold_command(finished, failed, Arrival(9, 0)).head == finished


@pytest.mark.parametrize(("known", "fails"), [(1, False), (2, True), (3, True)])
def test_failure_waits_for_windows_before_it(known: int, fails: bool) -> None:
    """A former owner's windows may have come too late: then the session's audio is analysed again."""
    head = grown(HEAD, made(0, known, 1), 0)
    step = fold_command(head, Failed("analysis", "damaged", 2), Arrival(9, 0))
    assert step.head is not None
    assert (step.head.error is not None) is fails


def test_rows_of_head_keep_all_of_it() -> None:
    head = grown(HEAD, made(0, 3, 2), 7)
    newest = Newest(head.windows, head.cursor, head.finished, head.analysed_at, head.silent, Block("m", bytes(3)))
    assert whole(stored(head), newest) == head
    failed = fold_command(head, Failed("analysis", "damaged", 3), Arrival(9, 0)).head
    assert failed is not None
    assert whole(stored(failed), newest) == failed
    deleted = fold_command(head, Deleted("c"), Arrival(9, 0)).head
    assert deleted is not None
    assert whole(stored(deleted), None) == deleted


def test_notes_are_no_use_of_session() -> None:
    """They do not keep it from expiring."""
    head: SessionHead | None = HEAD
    notes: list[SessionCommand] = [Tuned("t", SoundRule(2, 2)), Metered("ledger", 1)]
    for offset, note in enumerate(notes, 6):
        head = fold_command(head, note, Arrival(offset, 99)).head
    assert head is not None
    assert (head.command, head.touched, head.noted) == (HEAD.command, HEAD.touched, 7)


def rules(rule: SoundRule, first: int = 0, **by_name: SoundRule) -> SoundRules:
    return SoundRules(first, "c", rule, by_name)


def run(rule: SoundRule, windows: str, hop_ms: int = 500, *later: SoundRules) -> list[tuple[bool, int, int]]:
    """Return the begins and ends of one sound; `x` is a window that reports it."""
    tracker, found = SoundTracker([rules(rule), *later]), []
    for number, one in enumerate(windows):
        start = number * hop_ms
        reported = [("Dog_bark", 0.5 + number / 100)] if one == "x" else []
        found += [
            (one.event == STARTED, one.start_ms, one.end_ms)
            for one in tracker.take(number, start, start + 1000, reported)
        ]
    return [*found, *((one.event == STARTED, one.start_ms, one.end_ms) for one in tracker.finish())]


def test_default_rule_starts_at_once_and_ends_after_silence() -> None:
    assert run(SoundRule(), ".x.x..x") == [
        (True, 500, 1500),
        (False, 500, 2500),
        (True, 3000, 4000),
        (False, 3000, 4000),
    ]


def test_rule_requires_n_of_m_windows() -> None:
    rule = SoundRule(2, 3, 0.5)
    assert run(rule, "x..x..x") == []
    assert run(rule, "x.x....") == [(True, 0, 2000), (False, 0, 2000)]
    assert run(SoundRule(3, 3), "xx.xx.xxx") == [(True, 3000, 5000), (False, 3000, 5000)]


def test_next_sound_begins_after_the_last_one_ended() -> None:
    """Windows of the last sound count for the rule, but are no part of the next sound."""
    assert run(SoundRule(2, 3, 0.5), "xx.x..") == [
        (True, 0, 1500),
        (False, 0, 1500),
        (True, 1500, 2500),
        (False, 1500, 2500),
    ]
    tracker, peaks = SoundTracker([rules(SoundRule(2, 3, 0.5))]), []
    for number, probability in enumerate((0.9, 0.6, 0.0, 0.7, 0.0, 0.6, 0.8)):
        reported = [("Dog_bark", probability)] if probability else []
        heard = tracker.take(number, 500 * number, 500 * number + 1000, reported)
        peaks += [(one.event == STARTED, one.probability) for one in heard]
    assert peaks == [(True, 0.9), (False, 0.9), (True, 0.7), (False, 0.7), (True, 0.6)]


def test_margin_joins_close_sounds() -> None:
    assert run(SoundRule(margin=3), "x....x......") == [(True, 0, 1000), (False, 0, 3500)]
    assert len(run(SoundRule(margin=2), "x....x......")) == 4


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
        rule = SoundRule(chance.randint(1, of), of, chance.choice((0, 0.5, 0.7, 2.5)))
        before = "".join(chance.choice("x..") for _ in range(12)) + "." * rule.horizon(500)
        after = "".join(chance.choice("x.") for _ in range(12))
        shift = 500 * len(before)
        late = [(on, start + shift, end + shift) for on, start, end in run(rule, after)]
        assert run(rule, before + after)[-len(late) :] == late or not late
        assert len(run(rule, before + after)) == len(late) + len(run(rule, before))


def test_new_rule_applies_from_its_window() -> None:
    wide = rules(SoundRule(margin=3), 2)
    assert run(SoundRule(), "x....x......", 500, wide) == run(SoundRule(margin=3), "x....x......")
    assert run(SoundRule(), "x..x....x...", 500, wide) == [(True, 0, 1000), (False, 0, 5000)]
    strict = rules(SoundRule(2, 2), 3)
    assert run(SoundRule(), "x..x..xx", 500, strict)[:2] == [(True, 0, 1000), (False, 0, 1000)]
    assert run(SoundRule(), "x..x..xx", 500, strict)[2:] == [(True, 3000, 4500), (False, 3000, 4500)]
    assert run(SoundRule(), "x..x..xx", 500, strict, rules(SoundRule(), 3)) == run(SoundRule(), "x..x..xx")


def test_chunk_that_was_answered_uncertainly_may_be_repeated_once() -> None:
    """Its sender was told that the write may still succeed; everybody else gets 409 for a number that is taken."""
    head, offsets = SessionHead("stream", 6, 0, 0), iter(range(1, 99))

    def upload(number: int, data: bytes, *, given_up: bool = False) -> int:
        nonlocal head
        command = Chunk("c", number, data)
        if (foreseen := foresee(head, command)) is not None:
            return foreseen.status
        step = fold_command(head, command, Arrival(next(offsets), 0, data.ljust(16), given_up=given_up))
        assert step.head is not None
        head = step.head
        return step.verdict.status

    assert upload(0, b"aa", given_up=True) == 200
    assert upload(0, b"bb") == 409, "other bytes"
    assert upload(1, b"cc") == 200
    assert upload(1, b"cc") == 409, "another number"
    assert upload(0, b"aa", given_up=True) == 200, "nobody heard this answer either"
    assert upload(0, b"aa") == 200
    assert upload(0, b"aa") == 409
    assert (head.next, head.received) == (2, 4)
    assert upload(2, b"dd", given_up=True) == 200
    assert head.state is SessionState.READONLY
    assert [upload(2, data) for data in (b"xx", b"dd", b"dd")] == [403, 200, 403]
