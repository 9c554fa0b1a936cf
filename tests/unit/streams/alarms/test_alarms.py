"""Alarms of a partition: made with their windows, once, whatever is lost; kept, listed, delivered, and deleted."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.alarms import alarm_rows, outbox
from streams.alarms.outbox import AlarmOutbox, erase_project
from streams.disk import DiskFull
from streams.folding import draft
from tests.unit.streams.sessions.world import BEGUN, MODEL, SESSION, TAGS, World, score
from topics import keys
from topics.alarms.alarms import Alarm, Delivery
from topics.alarms.rules import AlarmRule, StoredRule, unused
from topics.errors import Damaged, RecordError, Unavailable
from topics.ports.alarms import AlarmQuery
from topics.service_time import Served
from topics.sessions.records import Chunk, Cursor, Deleted, Expired, Failed, Metered, NewWindows, Opened
from topics.times import DAY_MS

OPENED = Opened("c", "stream", "audio/wav", "p", 1000, 500, file_name="barn")
OTHER = "T" * 24


def rule(tag: str = "Dog", id: str = "r", **options: Any) -> StoredRule:
    fields = {"tags": (tag,), "cooldown": 0, "gap": 0, "destinations": ("d1", "d2"), **options}
    return StoredRule(id, "p", 1, AlarmRule(id, **{**fields, **unused(options.get("when", "heard"))}))


def world_of(*rules: StoredRule, chunks: int = 40, opened: Opened = OPENED) -> World:
    world = World(rules or (rule(),))
    world.take(opened, *(Chunk("c", number, b"s") for number in range(chunks)))
    return world


def alarms(world: World) -> list[Alarm]:
    """Return the alarms of the session that readers see, oldest first."""
    found = (world.store.alarms.get(SESSION, number) for number in range(100))
    return [alarm for alarm in found if alarm is not None]


def rows_of_alarms(world: World) -> list[bytes]:
    return [key for key in world.partition.rows if key[:1] in (keys.ALARM, keys.ALARM_LIST, keys.ALARM_DUE)]


def due(world: World, until: int = 2**50, count: int = 100, busy: Sequence[str] = ()) -> list[tuple[int, Alarm]]:
    return list(world.store.alarms.due(until, count, busy))


def assert_entries(world: World) -> None:
    """Check that all alarms are in the project's list, and all pending deliveries are due once the partition begins."""
    made = alarms(world)
    assert sorted(world.store.alarms.listed(AlarmQuery("p")), key=lambda one: one.sequence) == made
    announced = [one for some in world.store.alarms.pending() for one in some]
    assert sorted(announced, key=lambda one: one.sequence) == [one for one in made if one.pending]
    assert len(due(world)) == sum(len(one.pending) for one in made)


def expected(*rules: StoredRule, chunks: int = 40) -> list[tuple[int, str, int]]:
    world = world_of(*rules, chunks=chunks)
    world.analyse(chunks)
    return [(one.sequence, one.rule, one.window) for one in alarms(world)]


# --- once -----------------------------------------------------------------------------------------------------------


def test_alarm_is_shown_and_announced_with_its_windows() -> None:
    world = world_of(rule(duration=1.5))
    world.analyse()
    world.put(_windows(1, 1))
    assert (alarms(world), world.made) == ([], [])
    world.show()
    [alarm] = alarms(world)
    assert (alarm.window, alarm.source, alarm.begins_at, alarm.sequence) == (1, "barn", BEGUN, 0)
    assert world.made == [alarm]
    assert_entries(world)
    # The table never has what the changelog has not, and the alarm comes before the row that says it was made.
    logged = [key for key, _ in world.partition.changelog][::-1]
    newest, watched = (logged.index(world.store.row_key(SESSION, kind)) for kind in (keys.NEWEST, keys.WATCHED))
    assert newest < watched < logged.index(keys.alarm_key(SESSION, 0))


def _windows(first: int, count: int) -> NewWindows:
    packed = b"".join(score(number) for number in range(first, first + count))
    return NewWindows(first, MODEL, packed, Cursor(first + count, first + count), tags=TAGS)


RULES = (rule(), rule("Cat", "long", duration=1.5, gap=1.0), rule("Siren", "quiet", when="absent", duration=2.0))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 7), st.sampled_from(["", "", "crash", "commit"]), st.floats(0, 1), st.booleans()),
        max_size=20,
    )
)
def test_any_crash_makes_each_alarm_once(steps: list[tuple[int, str, float, bool]]) -> None:
    """The changelog may end between any two rows, before or after any of them was shown."""
    world, told = world_of(*RULES), dict[int, Alarm]()
    for count, event, kept, local in [*steps, (40, "", 0.0, True)]:
        if event == "crash":
            head = world.head
            if head.windows < 40:
                world.put(_windows(head.windows, min(count, 40 - head.windows)))
            world.crash(kept, local)
        else:
            world.analyse(count)
        if event == "commit":
            world.commit()
        for alarm in alarms(world):
            assert told.setdefault(alarm.sequence, alarm) == alarm, "an alarm that was seen changed"
    found = [(one.sequence, one.rule, one.window) for one in alarms(world)]
    assert found == expected(*RULES)
    assert_entries(world)


def test_rows_that_were_logged_without_their_end_are_not_made() -> None:
    """A list of a takeover does not have them, and the next owner replaces them."""
    world = world_of(*RULES)
    before = dict(world.partition.rows)
    world.put(_windows(0, 10))
    logged = world.partition.changelog[-20:]
    first_rows = {key: value for key, value in logged if key[:1] in (keys.ALARM, keys.ALARM_LIST, keys.ALARM_DUE)}
    world.partition.rows = {**before, **{key: value for key, value in first_rows.items() if value is not None}}
    world.partition.waiting.clear()
    world.begin()
    assert rows_of_alarms(world)
    assert (alarms(world), list(world.store.alarms.listed(AlarmQuery("p"))), due(world)) == ([], [], [])
    assert world.store.alarms.project_of(SESSION) is None
    assert [one for some in world.store.alarms.pending() for one in some] == []
    world.rules = ()
    world.analyse(10)
    world.rules = (rule("Dog", "later"),)
    world.analyse(30)
    assert {one.rule for one in alarms(world)} == {"later"}
    assert_entries(world)


def test_full_disk_delays_alarms() -> None:
    world = world_of()
    with mock.patch.object(world.partition, "write", side_effect=DiskFull("full")):
        world.put(_windows(0, 20))
        world.show()
        assert (alarms(world), world.made) == ([], [])
    world.show()
    assert world.made == alarms(world) != []


def test_failure_takes_alarms_of_windows_that_nobody_saw() -> None:
    world = world_of()
    world.analyse(10)
    before = alarms(world)
    world.put(_windows(10, 30))
    world.take(Failed("analysis", "damaged", 10))
    world.show()
    assert alarms(world) == world.made == before
    world.crash(1.0, local=False)
    assert alarms(world) == before


def test_rule_that_changes_begins_anew_and_one_that_is_gone_is_forgotten() -> None:
    world = world_of(rule(cooldown=600))
    world.analyse(20)
    assert len(alarms(world)) == 1
    world.rules = (msgspec.structs.replace(world.rules[0], revision=2), *world.rules[1:])
    world.analyse(10)
    assert len(alarms(world)) == 2
    world.rules = ()
    world.analyse(10)
    assert len(alarms(world)) == 2


def test_unreadable_state_is_an_error_of_the_session() -> None:
    world = world_of()
    world.partition.rows[world.store.row_key(SESSION, keys.WATCHED)] = b"\x09"
    with pytest.raises(RecordError):
        world.put(_windows(0, 1))


def test_files_make_no_alarms() -> None:
    world = world_of(opened=msgspec.structs.replace(OPENED, kind="file"))
    world.write(_windows(0, 20))
    assert rows_of_alarms(world) == []


def test_memory_holds_the_sessions_that_had_windows_last(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_of(*RULES)
    monkeypatch.setattr(world.store, "_watching_most", 1)
    for _ in range(20):
        world.analyse(2)
        world.store.watch(OTHER, mock.Mock())
        assert world.store.watching(SESSION) is None
    assert [(one.sequence, one.rule, one.window) for one in alarms(world)] == expected(*RULES)


# --- the end --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1000, 3])
def test_deletion_takes_alarms_and_expiry_leaves_them(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(alarm_rows, "ERASED_ROWS", most)
    monkeypatch.setattr(draft, "ERASED_ROWS", 1000)
    world = world_of()
    world.analyse(40)
    made = alarms(world)
    assert len(made) > 3
    world.take(Expired("sweep", world.head.command, BEGUN + 10**9))
    assert world.store.watching(SESSION) is None
    assert alarms(world) == made
    world.take(Metered("ledger", 40))
    assert world.rows() == {}
    assert alarms(world) == made
    assert_entries(world)
    assert world.store.alarms.project_of(SESSION) == "p"
    # What was on its way when it expired is deleted by a repeated command.
    world.take(Deleted("c"))
    assert (alarms(world), list(world.store.alarms.listed(AlarmQuery("p"))), due(world)) == ([], [], [])
    for _ in range(10):
        for _ in world.store.alarms.sweep(Served(BEGUN)):
            pass
    assert rows_of_alarms(world) == []
    world.commit()
    world.crash(1.0, local=False)
    assert rows_of_alarms(world) == []


def test_deletion_takes_alarms_on_their_way() -> None:
    world = world_of()
    world.analyse(10)
    world.put(_windows(10, 30))
    world.take(Deleted("c"))
    world.show()
    assert rows_of_alarms(world) == []
    world.crash(1.0, local=False)
    assert rows_of_alarms(world) == []


def test_deletion_that_is_folded_again_takes_alarms_again() -> None:
    world = world_of()
    world.analyse(10)
    world.commit()
    world.take(Deleted("c"))
    world.crash(0.0, local=False)
    assert rows_of_alarms(world) == []


def test_alarms_are_kept_for_seven_days_of_service() -> None:
    world = world_of()
    world.partition.at = BEGUN
    world.analyse(40)
    made = len(alarms(world))

    def left(served: Served) -> int:
        for _ in world.store.alarms.sweep(served):
            pass
        return len(alarms(world))

    assert left(Served(BEGUN + 7 * DAY_MS - 1)) == made
    assert left(Served(BEGUN + 7 * DAY_MS, ((BEGUN + 5, BEGUN + 6),))) == made
    assert left(Served(BEGUN + 7 * DAY_MS)) == 0
    assert rows_of_alarms(world) == []


def test_unreadable_alarm_is_left_out_and_goes_with_the_others() -> None:
    world = world_of()
    world.analyse(40)
    made = alarms(world)
    world.partition.rows[keys.alarm_key(SESSION, 1)] = b"\x09"
    with pytest.raises(RecordError):
        world.store.alarms.get(SESSION, 1)
    rest = [made[0], *made[2:]]
    assert sorted(world.store.alarms.listed(AlarmQuery("p")), key=lambda one: one.sequence) == rest
    assert len([one for some in world.store.alarms.pending() for one in some]) == len(rest)
    assert len(due(world)) == 2 * len(rest)
    for _ in world.store.alarms.sweep(Served(8 * DAY_MS)):
        pass
    assert list(world.store.alarms.listed(AlarmQuery("p"))) == []
    assert due(world) == []
    assert [key for key in rows_of_alarms(world) if key[:1] != keys.ALARM_LIST] == []


def test_project_that_is_deleted_takes_alarms_of_expired_sessions() -> None:
    world = world_of()
    world.analyse(40)
    made = len(alarms(world))
    world.take(Expired("sweep", world.head.command, BEGUN + 10**9))
    assert asyncio.run(erase_project(world.store, "p2")) == 0
    assert asyncio.run(erase_project(world.store, "p")) == made
    assert rows_of_alarms(world) == []


# --- lists and deliveries -------------------------------------------------------------------------------------------


def test_list_is_of_a_time_and_continues_anywhere() -> None:
    world = world_of(chunks=12)
    for at in range(12):
        world.partition.at = BEGUN + at // 3
        world.analyse(1)
    newest_first = sorted(alarms(world), key=lambda one: (-one.made_at, one.session, one.sequence))
    assert len({one.made_at for one in newest_first}) > 2

    def listed(**query: Any) -> list[Alarm]:
        return list(world.store.alarms.listed(AlarmQuery("p", **query)))

    assert listed() == newest_first
    assert list(world.store.alarms.listed(AlarmQuery("q"))) == []
    for at in range(BEGUN, BEGUN + 5):
        assert listed(since_ms=at) == [one for one in newest_first if one.made_at >= at]
        assert listed(until_ms=at) == [one for one in newest_first if one.made_at < at]
    for place, one in enumerate(newest_first):
        assert listed(after=(one.made_at, one.session, one.sequence)) == newest_first[place + 1 :]


def test_due_deliveries_are_those_of_each_destination_in_turn() -> None:
    world = world_of(chunks=20)
    for at in range(20):
        world.partition.at = BEGUN + at
        world.analyse(1)
    made = alarms(world)
    assert due(world, until=BEGUN - 1) == []
    first_two = [(one.made_at, one) for one in made[:2]]
    assert due(world, count=2) == first_two * 2
    assert due(world, count=2, busy=["d1"]) == first_two
    assert due(world, until=made[2].made_at, busy=["d2"]) == [(one.made_at, one) for one in made[:3]]
    # Delivered ones are due no more, and a later attempt is due later.
    change = world.store.alarms.change
    change(made[0], _with(made[0], Delivery("d1", "delivered", 1, BEGUN + 5, 200)))
    change(made[1], _with(made[1], Delivery("d1", "pending", 1, BEGUN + 1000, 503)))
    found = [one.sequence for _, one in due(world, busy=["d2"])]
    assert found == [*range(2, len(made)), 1]
    # A search begins where the last one found the first; an entry below it is found all the same.
    scanned = mock.Mock(side_effect=world.partition.scan)
    with mock.patch.object(world.partition, "scan", scanned):
        due(world, count=1, busy=["d2"])
        assert due(world, until=made[2].made_at - 1, busy=["d2"]) == []
    assert [one.args[0] for one in scanned.call_args_list] == [keys.alarm_due_key("d1", made[2].made_at)]
    change(alarms(world)[0], made[0])
    assert due(world, count=1, busy=["d2"]) == [(made[0].made_at, made[0])]
    # Nothing is looked for once nothing is pending.
    for alarm in alarms(world):
        change(alarm, msgspec.structs.replace(alarm, deliveries=()))
    assert due(world) == []
    with mock.patch.object(world.partition, "scan", scanned):
        due(world)
    assert scanned.call_count == 1


def _with(alarm: Alarm, delivery: Delivery) -> Alarm:
    others = (one for one in alarm.deliveries if one.destination != delivery.destination)
    return msgspec.structs.replace(alarm, deliveries=(delivery, *others))


class Office:
    """An outbox around one partition."""

    def __init__(self) -> None:
        self.world = world_of()
        self.world.analyse(40)
        self.world.partition.is_prompt = True
        self.world.store.presence.served = Served(BEGUN)
        self.here = True
        self.outbox = AlarmOutbox(self._store, self._stores, self._store, self._stores)
        self.told: list[Alarm] = []
        self.outbox.subscribe(self.told.append)

    def _store(self, session: str) -> Any:
        if not self.here:
            raise Unavailable("elsewhere")
        return self.world.store

    def _stores(self) -> list[Any]:
        return [self.world.store] if self.here else []


def run(work: Callable[[Office], Any]) -> None:
    async def running() -> None:
        await work(Office())

    asyncio.run(running())


def test_attempt_is_noted_in_the_alarm() -> None:
    async def work(office: Office) -> None:
        delivered = Delivery("d1", "delivered", 1, BEGUN, 200)
        noted = await office.outbox.note(SESSION, 0, delivered)
        assert noted == office.outbox.alarm(SESSION, 0)
        assert noted is not None
        assert [one.destination for one in noted.deliveries] == ["d1", "d2"]
        assert noted.deliveries[0] == delivered
        assert [one.destination for one in noted.pending] == ["d2"]
        assert await office.outbox.note(SESSION, 10**6, delivered) is None
        office.world.crash(1.0, local=False)
        assert office.outbox.alarm(SESSION, 0) == noted
        office.here = False
        with pytest.raises(Unavailable):
            await office.outbox.note(SESSION, 0, delivered)

    run(work)


def test_partition_taken_over_announces_pending_alarms_once() -> None:
    async def work(office: Office) -> None:
        made = alarms(office.world)
        await office.outbox.note(SESSION, 0, Delivery("d1", "failed"))
        await office.outbox.note(SESSION, 1, Delivery("d1", "failed"))
        await office.outbox.note(SESSION, 1, Delivery("d2", "delivered"))
        office.world.crash(1.0, local=False)
        assert office.outbox.due(2**50, 100) == []
        await office.outbox.begin(office.world.store)
        assert sorted(one.sequence for one in office.told) == [0, *range(2, len(made))]
        assert sorted(one.sequence for one in office.outbox.due(2**50, 100)) == [0, *range(2, len(made))]
        assert (office.outbox.waiting(100), office.outbox.waiting(3)) == (2 * len(made) - 3, 3)
        office.here = False
        await office.outbox.begin(office.world.store)
        assert len(office.told) == len(made) - 1

    run(work)


def test_people_judge_alarms_and_send_them_again() -> None:
    async def work(office: Office) -> None:
        shown: list[Alarm] = []
        office.outbox.follow(shown.append)
        office.world.partition.at = BEGUN + 77
        assert office.outbox.now_ms(SESSION) == BEGUN + 77
        judged = await office.outbox.judge(SESSION, 0, True)
        assert judged == office.outbox.alarm(SESSION, 0)
        assert judged is not None
        assert judged.false
        await office.outbox.note(SESSION, 0, Delivery("d1", "failed", 10, BEGUN, None, "no"))
        again = await office.outbox.send_again(SESSION, 0, "d1")
        assert again is not None
        assert again.false
        assert again.deliveries[0] == Delivery("d1", at=BEGUN + 77)
        assert office.told == [again]
        assert [(one.false, one.deliveries[0].state) for one in shown] == [
            (True, "pending"),
            (True, "failed"),
            (True, "pending"),
        ]
        assert await office.outbox.send_again(SESSION, 0, "d3") is None
        assert await office.outbox.send_again(SESSION, 10**6, "d1") is None
        assert await office.outbox.judge(SESSION, 10**6, True) is None
        listed = office.outbox.alarms(AlarmQuery("p", count=3))
        assert len(listed) == 3
        assert again in office.outbox.alarms(AlarmQuery("p"))
        office.world.partition.rows[keys.alarm_key(SESSION, 0)] = b"\x09"
        with pytest.raises(Damaged):
            await office.outbox.judge(SESSION, 0, True)

    run(work)


def test_judgement_waits_for_the_changelog(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(office: Office) -> None:
        office.world.partition.is_prompt = False
        monkeypatch.setattr(outbox, "LOGGED_SECONDS", 0.01)
        with pytest.raises(Unavailable, match="the log was too slow"):
            await office.outbox.judge(SESSION, 0, True)

    run(work)


def test_sweep_of_a_node_deletes_old_alarms() -> None:
    async def work(office: Office) -> None:
        office.world.store.presence.served = Served(8 * DAY_MS)
        with mock.patch.object(office.world.partition, "write", side_effect=DiskFull("full")):
            await office.outbox.sweep()
        assert alarms(office.world)
        await office.outbox.sweep()
        assert rows_of_alarms(office.world) == []

    run(work)
