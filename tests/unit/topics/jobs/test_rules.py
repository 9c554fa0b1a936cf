"""The law of a job under random histories: several runs, redelivery, crashes, against a model that reads the log."""

from itertools import product
from random import Random
from typing import get_args

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests import naive
from tests.unit.streams.jobs.world import JOB, KEEP_MS, JobWorld, accepted
from topics import keys, record_codec
from topics.jobs import records
from topics.jobs.options import NEEDS, Options, Service
from topics.jobs.result_rules import LOST, fold_result
from topics.jobs.rules import TABLE, UPLOAD_IDLE_MS, Entry, EntryState, JobHead, JobState

OPTIONS = [
    Options(sound_event_detection=True),
    Options(speech_analysis=True, translation=True),
    Options(sound_event_detection=True, speech_analysis=True, audio_insights=True, caption=True, translation=True),
]


#: How long the audio of some jobs is kept.
AUDIO_MS = 60_000


class Running:
    """A run and its emitted records."""

    def __init__(self, service: Service, name: str) -> None:
        self.service = service
        self.name = name
        self.portions = 0


class Job(RuleBasedStateMachine):
    """One job id; `runs` are those of the living node, `ghosts` those of dead nodes, which may still emit."""

    def __init__(self) -> None:
        super().__init__()
        self.world = JobWorld()
        self.runs: dict[Service, Running] = {}
        self.ghosts: list[Running] = []
        self.names = 0
        #: Earlier results belong to a previous job with this id.
        self.first = 0
        self.ended: dict[Service, Entry] = {}
        self.completed = False
        self.owed: set[Service] = set()

    @property
    def head(self) -> JobHead | None:
        return self.world.head

    def folded_results(self) -> list[records.JobResult]:
        return [record_codec.decode_job_result(record.value) for record in self.world.results[: self.world.folded[1]]]

    # --- commands ---------------------------------------------------------------------------------------------------

    @initialize(
        parts=st.sampled_from([0, 1, 2, 2]), options=st.sampled_from(OPTIONS), keep=st.sampled_from([0, AUDIO_MS])
    )
    def upload(self, parts: int, options: Options, keep: int) -> None:
        """Most histories have an accepted job."""
        for number in range(parts):
            self.world.append(records.Part("c", "a", number, b"a %d" % number))
        if parts:
            self.world.append(accepted("a", parts, options, keep_audio_ms=keep))
            self.world.fold_all()

    @rule(upload=st.sampled_from("aab"), ahead=st.sampled_from([0, 0, 0, 1, -1]), restart=st.integers(0, 5))
    def part(self, upload: str, ahead: int, restart: int) -> None:
        number = 0 if self.head is None or not restart else max(0, self.head.parts + ahead)
        self.world.append(records.Part("c", upload, number, b"%s %d" % (upload.encode(), number)))

    @rule(upload=st.sampled_from("aab"), less=st.sampled_from([0, 0, 0, 1]), options=st.sampled_from(OPTIONS))
    def accept(self, upload: str, less: int, options: Options) -> None:
        self.world.fold_all()
        parts = 0 if self.head is None else self.head.parts - less
        self.world.append(accepted(upload, parts, options))

    @rule(really=st.sampled_from([False] * 5 + [True]))
    def remove(self, really: bool) -> None:
        if really:
            self.world.append(records.Removed("c"))

    @rule(really=st.sampled_from([False] * 9 + [True]), due=st.integers(0, 3), ago=st.integers(0, 2))
    def sweep(self, really: bool, due: int, ago: int) -> None:
        """Retention is long: everything before is folded and committed, and no earlier node is left."""
        self.world.fold_all()
        if really:
            self.world.commit()
            self.world.now += KEEP_MS + 1
            self.runs.clear()
            self.ghosts.clear()
        before = self.head
        if before is not None and (really or ago):
            over = not (before.unbilled or before.keep_audio_ms or ago)
            self.world.append(records.Overdue("sweep", before.command - ago, due))
            self.world.fold_all()
            assert (self.head is None) == over
            assert self.head is None or self.head.keep_audio_ms == (before.keep_audio_ms if ago else 0)
        if really or self.head is None:
            self.world.commit()
        if self.head is None:
            self.first = len(self.world.results)
            self.ended, self.completed = {}, False

    @rule(milliseconds=st.sampled_from([0, 1, AUDIO_MS, UPLOAD_IDLE_MS]))
    def wait(self, milliseconds: int) -> None:
        self.world.now += milliseconds

    # --- results ----------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.head is not None and self.head.ready)
    @rule(choice=st.randoms(use_true_random=False), again=st.booleans())
    def start(self, choice: Random, again: bool) -> None:
        assert self.head is not None
        service = choice.choice(self.head.ready)
        if service not in self.runs or again:
            self.begin_run(service)

    @precondition(lambda self: self.head is not None and self.head.ready)
    @rule(portions=st.integers(0, 3), error=st.sampled_from([None, None, "failed"]))
    def serve(self, portions: int, error: str | None) -> None:
        """An undisturbed run, unless a ghost interferes."""
        assert self.head is not None
        running = self.begin_run(self.head.ready[0])
        run = running.service, running.name
        self.world.take(*(records.Portion(*run, number, b"%d" % number, 0.1 * number) for number in range(portions)))
        running.portions = portions
        self.world.take(records.Finished(*run, portions, error, 1000, "m"))

    def begin_run(self, service: Service) -> Running:
        if service in self.runs:
            self.ghosts.append(self.runs[service])
        self.names += 1
        running = self.runs[service] = Running(service, f"r{self.names}")
        # A job's results come only after the job is in the changelog.
        self.world.flush()
        self.world.append(records.Started(service, running.name, ("a", "b")[: 1 + self.names % 2]))
        return running

    def any_run(self, choice: Random) -> Running | None:
        known = [*self.runs.values(), *self.ghosts]
        return choice.choice(known) if known else None

    @rule(choice=st.randoms(use_true_random=False), twice=st.booleans())
    def portion(self, choice: Random, twice: bool) -> None:
        if (running := self.any_run(choice)) is not None:
            data = b"%s %d" % (running.name.encode(), running.portions)
            for _ in range(1 + twice):
                self.world.append(records.Portion(running.service, running.name, running.portions, data, 0.5))
            running.portions += 1

    @rule(choice=st.randoms(use_true_random=False))
    def break_off(self, choice: Random) -> None:
        if (running := self.any_run(choice)) is not None:
            self.world.append(records.Stopped(running.service, running.name, ()))

    @rule(choice=st.randoms(use_true_random=False), error=st.sampled_from([None, None, "failed"]))
    def finish(self, choice: Random, error: str | None) -> None:
        if (running := self.any_run(choice)) is not None:
            self.world.append(records.Finished(running.service, running.name, running.portions, error, 1000, "m"))

    @precondition(lambda self: self.head is not None and self.head.unbilled)
    @rule()
    def bill(self) -> None:
        assert self.head is not None
        self.world.append(records.Billed(tuple(entry.service for entry in self.head.unbilled)))

    # --- folding ----------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.world.folded[0] < len(self.world.commands))
    @rule()
    def fold_command(self) -> None:
        before = self.head
        self.world.fold_command()
        if before is not None and before.visible and self.head is not None and self.head.state is JobState.REMOVED:
            self.runs.clear()

    @precondition(lambda self: self.world.folded[1] < len(self.world.results))
    @rule(count=st.integers(1, 4))
    def fold_results(self, count: int) -> None:
        for _ in range(min(count, len(self.world.results) - self.world.folded[1])):
            self.world.fold_result()

    @rule()
    def commit(self) -> None:
        self.world.commit()

    @rule(
        kept=st.sampled_from([0.0, 0.4, 0.8, 1.0]),
        local=st.booleans(),
        order=st.randoms(use_true_random=False),
        standby=st.booleans(),
        then=st.none() | st.tuples(st.integers(0, 6), st.sampled_from([0.0, 0.4, 0.8, 1.0]), st.booleans()),
    )
    def crash(
        self, kept: float, local: bool, order: Random, standby: bool, then: tuple[int, float, bool] | None
    ) -> None:
        self.world.crash(kept, local, order, then, standby=standby)
        self.ghosts.extend(self.runs.values())
        self.runs.clear()

    # --- invariants -------------------------------------------------------------------------------------------------

    @invariant()
    def entries_are_what_the_log_says(self) -> None:
        head, store = self.head, self.world.store
        if head is None or not head.visible:
            return
        assert store.accepted(JOB) is not None
        results = self.folded_results()[self.first :]
        for entry in head.entries:
            portions, end = naive.job_entry(results, entry.service)
            assert entry.ended == (end is not None)
            if end is not None:
                assert (entry.state is EntryState.SUCCESS) == (end.error is None)
                assert (entry.run, entry.error, entry.portions) == (end.run, end.error, end.portions)
            found = [store.portion(JOB, entry.service, number) for number in range(entry.portions)]
            assert found == portions

    @invariant()
    def what_has_ended_stays(self) -> None:
        head = self.head
        if head is None or not head.visible:
            return
        for service, entry in self.ended.items():
            now = head.entry(service)
            assert now is not None
            for part in ("state", "run", "portions", "error"):
                assert getattr(now, part) == getattr(entry, part)
        self.ended = {entry.service: entry for entry in head.entries if entry.ended}
        assert head.state is JobState.COMPLETED or not self.completed
        self.completed = head.state is JobState.COMPLETED
        assert self.completed == all(entry.ended for entry in head.entries)

    @invariant()
    def every_success_is_billed_or_remembered(self) -> None:
        self.owed.update(service for service, entry in self.ended.items() if entry.state is EntryState.SUCCESS)
        billed = {
            service
            for result in self.folded_results()
            if isinstance(result, records.Billed)
            for service in result.services
        }
        kept = set() if self.head is None else {entry.service for entry in self.head.unbilled}
        assert self.owed <= billed | kept
        if kept:
            assert self.world.store.accepted(JOB) is not None

    @invariant()
    def what_is_ready_has_what_it_needs(self) -> None:
        for service in () if self.head is None else self.head.ready:
            assert self.head is not None
            for need in NEEDS.get(service, ()):
                entry = self.head.entry(need)
                assert entry is None or entry.ended

    @invariant()
    def the_log_keeps_the_audio_that_is_needed(self) -> None:
        head, store = self.head, self.world.store
        kept = head is not None and head.state is JobState.COMPLETED and head.keep_audio_ms > 0
        needed = head is not None and (head.unfinished or head.state is JobState.RECEIVING or kept)
        rows = store.audio(JOB, 0, head.parts) if head is not None and needed else []
        assert store.references.lowest() == min((row.offset for row in rows), default=None)
        if head is not None and needed:
            parts = [record_codec.decode_job_command(self.world.commands[row.offset].value) for row in rows]
            assert [(part.upload, part.number) for part in parts if isinstance(part, records.Part)] == [
                (head.upload, number) for number in range(head.parts)
            ]
        if head is not None and head.state is JobState.COMPLETED and not kept:
            assert store.audio(JOB, 0, head.parts) == []

    @invariant()
    def a_job_is_watched_and_a_removed_one_leaves_nothing(self) -> None:
        head, store = self.head, self.world.store
        if head is not None:
            assert any(due <= head.due(KEEP_MS) for due, _ in store.due(2**60, 100))
        if head is None or head.state is JobState.REMOVED:
            kept = () if head is None else (keys.HEAD, keys.REQUEST)
            assert self.world.left() <= {store.row_key(JOB, kind) for kind in kept}

    def teardown(self) -> None:
        """Nothing is stuck: after any history, completing ready work completes the job."""
        self.world.fold_all()
        for _ in range(len(Service)):
            for service in () if self.head is None else self.head.ready:
                running = self.begin_run(service)
                self.world.append(records.Finished(service, running.name, 0, None, 1, "m"))
            self.world.fold_all()
        head = self.head
        assert head is None or head.state in (JobState.RECEIVING, JobState.COMPLETED, JobState.REMOVED)
        if head is not None and head.unbilled:
            self.world.append(records.Billed(tuple(entry.service for entry in head.unbilled)))
            self.world.fold_all()
            assert self.head is not None
            assert not self.head.unbilled
        self.every_success_is_billed_or_remembered()
        self.a_job_is_watched_and_a_removed_one_leaves_nothing()


Job.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestJob = Job.TestCase


# --- the table, and cases beyond the histories ----------------------------------------------------------------------


def test_every_command_has_a_rule_in_every_state() -> None:
    assert {*product(JobState, get_args(records.JobCommand))} <= TABLE.keys()


def head_of(options: Options) -> JobHead:
    world = JobWorld()
    world.take(records.Part("c", "a", 0, b"a"), accepted("a", 1, options))
    return world.there


def test_gap_in_portions_fails_entry() -> None:
    """A portion was parked: later ones are no result, and the service must not wait forever."""
    head: JobHead | None = head_of(OPTIONS[0])
    for result in (
        records.Started(Service.SOUND, "r"),
        records.Portion(Service.SOUND, "r", 1, b"second"),
        records.Finished(Service.SOUND, "r", 2),
    ):
        assert head is not None
        head = fold_result(head, result).head
    assert head is not None
    [entry] = head.entries
    assert (entry.state, entry.error, entry.portions) == (EntryState.ERROR, LOST, 0)
    assert head.state is JobState.COMPLETED


def test_unrequested_services_are_not_awaited() -> None:
    assert head_of(Options(caption=True, audio_insights=True)).ready == (Service.INSIGHTS, Service.CAPTION)


def test_only_successful_entries_are_billed() -> None:
    head = fold_result(head_of(OPTIONS[0]), records.Billed((Service.SOUND,))).head
    assert head is not None
    assert not head.entries[0].billed


def test_removed_job_is_not_rerun_under_idempotency_key() -> None:
    world = JobWorld()
    world.take(records.Part("c", "a", 0, b"a"), accepted("a", 1), records.Removed("c"))
    world.take(records.Part("c", "b", 0, b"a"), accepted("b", 1))
    assert world.there.state is JobState.REMOVED
    assert world.store.audio(JOB, 0, 9) == []


def test_latest_upload_under_same_key_is_accepted() -> None:
    world = JobWorld()
    parts = [("a", 0), ("a", 1), ("b", 0), ("a", 2)]
    world.take(*(records.Part("c", upload, number, upload.encode()) for upload, number in parts))
    world.take(accepted("a", 3), accepted("b", 1))
    assert (world.there.state, world.there.upload, world.there.received) == (JobState.ACCEPTED, "b", 1)
    assert [row.offset for row in world.store.audio(JOB, 0, 9)] == [2]


def test_unfinished_runs_are_counted_until_progress() -> None:
    service, head = Service.SOUND, head_of(OPTIONS[0])

    def begun(*results: records.JobResult) -> int:
        nonlocal head
        for result in results:
            head = fold_result(head, result).head or head
        entry = head.entry(service)
        assert entry is not None
        return len(entry.begun_by)

    def lives(count: int) -> tuple[str, ...]:
        return tuple("xyz"[:count])

    assert begun(records.Started(service, "a", lives(1))) == 1
    assert begun(records.Portion(service, "a", 0, b"")) == 0
    revision = head.revision
    # Stored again, and interrupted: no reader sees it.
    assert begun(records.Started(service, "a", lives(1)), records.Stopped(service, "a", lives(0))) == 0
    assert head.revision == revision
    assert begun(records.Started(service, "b", lives(1)), records.Portion(service, "b", 0, b"")) == 1
    assert begun(records.Started(service, "c", lives(2))) == 2
    assert begun(records.Portion(service, "c", 0, b""), records.Portion(service, "c", 1, b"")) == 0
    assert begun(records.Started(service, "d", lives(2)), records.Stopped(service, "c", lives(0))) == 2
    assert begun(records.Stopped(service, "d", lives(1))) == 1
    # Runs ended from outside are counted separately, and reset with the others.
    assert begun(records.Started(service, "e", lives(1), 4), records.Stopped(service, "e", lives(0))) == 0
    assert [entry.kills for entry in head.entries] == [4]
    assert (
        begun(
            records.Started(service, "f", lives(1), 5),
            *(records.Portion(service, "f", number, b"") for number in range(3)),
        )
        == 0
    )
    assert [entry.kills for entry in head.entries] == [0]
