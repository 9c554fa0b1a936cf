"""Attempts by a schedule, destinations that hold nobody, and memory that does not grow with what waits."""

import asyncio
from collections import Counter
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from streams.deliveries import deliverer, ready
from streams.deliveries.http import verdict
from streams.deliveries.outcome import Outcome
from streams.deliveries.ready import CONCURRENCY, EACH, MOST_WAITING
from tests.unit.streams.deliveries.alarms import alarm, destination
from tests.unit.streams.deliveries.outbox import FakeSender, Scene, many
from tests.waiting import until
from topics.alarms.alarms import Alarm, Delivery
from topics.errors import Damaged, NotOwned, Unavailable
from topics.ports.alarms import Destination

SLOW, QUICK = destination("http://slow.example/", id="slow"), destination("http://quick.example/", id="quick")


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliverer, "LOOK_SECONDS", 0.005)
    monkeypatch.setattr(deliverer, "REFILL_SECONDS", 0.001)
    monkeypatch.setattr(ready, "FIRST_REST", 0.02)
    monkeypatch.setattr(ready, "LONGEST_REST", 0.02)
    monkeypatch.setattr(ready, "LOGGED_SECONDS", 0.05)
    monkeypatch.setattr(deliverer, "JITTER", 0.0)


async def test_new_alarm_is_sent_at_once_and_noted() -> None:
    async with Scene() as scene:
        scene.outbox.make(alarm())
        await until(lambda: scene.delivery().state == "delivered")
        assert scene.delivery() == Delivery("hook", "delivered", 1, scene.outbox.now, 200)
        await asyncio.sleep(0.02)
        assert scene.sender.sent == [("hook", 3)]


async def test_alarm_of_before_is_found_in_its_row() -> None:
    async with Scene() as scene:
        scene.outbox.store(alarm())
        await until(lambda: scene.delivery().state == "delivered")


async def test_attempts_follow_schedule_until_the_last_has_failed() -> None:
    async with Scene(FakeSender(lambda to, one: verdict(500))) as scene:
        scene.outbox.make(alarm())
        begin = scene.outbox.now
        await until(lambda: scene.delivery().attempts == 1)
        assert scene.delivery() == Delivery("hook", "pending", 1, begin + 5000, 500, "it answered 500")
        await asyncio.sleep(0.02)
        assert len(scene.sender.sent) == 1, "not before it is due"
        scene.outbox.now += 5000
        await until(lambda: scene.delivery().attempts == 2)
        assert scene.delivery().at == begin + 5000 + 300_000
        scene.outbox.now += 300_000
        await until(lambda: scene.delivery().state == "failed")
        assert scene.delivery() == Delivery("hook", "failed", 3, scene.outbox.now, 500, "it answered 500")


async def test_retries_are_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliverer, "JITTER", 0.1)
    async with Scene(FakeSender(lambda to, one: verdict(500))) as scene:
        scene.outbox.make(*many(50))
        await until(lambda: len(scene.outbox.noted) == 50)
    pauses = {delivery.at - scene.outbox.now for _, delivery in scene.outbox.noted}
    assert len(pauses) > 10
    assert all(4500 <= pause <= 5500 for pause in pauses)


async def test_receiver_decides_when_to_retry_at_the_earliest() -> None:
    async with Scene(FakeSender(lambda to, one: verdict(400, 600.0))) as scene:
        scene.outbox.make(alarm())
        await until(lambda: scene.delivery().attempts == 1)
        assert scene.delivery().at == scene.outbox.now + 600_000


async def test_gone_receiver_is_switched_off() -> None:
    async with Scene(FakeSender(lambda to, one: verdict(410))) as scene:
        scene.outbox.make(*many(2))
        await until(lambda: scene.outbox.states()["failed"] == 2)
        assert scene.destinations.off == {"hook": "it answered 410: it wants no alarms any more"}
        scene.outbox.make(alarm())
        await until(lambda: scene.delivery(3).state == "failed")
        error = "the destination is switched off: it answered 410: it wants no alarms any more"
        assert scene.delivery(3) == Delivery("hook", "failed", 0, scene.outbox.now, None, error)


@pytest.mark.parametrize(
    ("found", "error"),
    [
        ({"id": "other"}, "the destination was removed"),
        ({"project": "other"}, "the destination was removed"),
        ({"enabled": False}, "the destination is switched off: by hand"),
    ],
)
async def test_unusable_destination_fails_without_an_attempt(found: dict[str, Any], error: str) -> None:
    async with Scene(None, destination("http://receiver.example/", **found)) as scene:
        scene.outbox.make(alarm())
        await until(lambda: scene.delivery().state == "failed")
        assert scene.delivery() == Delivery("hook", "failed", 0, scene.outbox.now, None, error)
        assert scene.sender.sent == []


async def test_alarm_of_long_ago_is_not_sent() -> None:
    async with Scene() as scene:
        scene.outbox.now += 5 * 86_400_000
        scene.outbox.make(alarm())
        again = alarm(sequence=4, deliveries=(Delivery("hook", at=scene.outbox.now - 1),))
        scene.outbox.make(again)
        await until(lambda: not scene.outbox.states()["pending"])
        assert scene.delivery(3).error == "the destination was away for 4 days"
        assert scene.delivery(4).state == "delivered", "somebody asked to send it again"


async def test_hanging_destination_holds_few_actors() -> None:
    ends = asyncio.Event()

    async def answer(to: Destination, one: Alarm) -> Outcome:
        if to.id == "slow":
            await ends.wait()
        return Outcome(status=200)

    async with Scene(FakeSender(answer), SLOW, QUICK) as scene:
        scene.outbox.make(*many(500, "slow", "quick"))
        await until(lambda: scene.outbox.states()["delivered"] == 500)
        assert scene.sender.most["slow"] == EACH
        assert scene.sender.most["quick"] <= EACH
        ends.set()
        await until(lambda: scene.outbox.states()["delivered"] == 1000)
    assert Counter(scene.sender.sent) == Counter({(id, one): 1 for one in range(500) for id in ("slow", "quick")})


async def test_destination_that_is_away_is_tried_by_one_alarm_at_a_time() -> None:
    away = True

    def answer(to: Destination, one: Alarm) -> Outcome:
        return Outcome("no connection", away=True) if away and to.id == "slow" else Outcome(status=200)

    async with Scene(FakeSender(answer), SLOW, QUICK, retries=(0.0,) * 1000) as scene:
        scene.outbox.make(*many(1000, "slow"))
        scene.outbox.make(*many(1000, "slow", "quick"))
        await until(lambda: scene.outbox.states()["delivered"] == 1000)
        before, tried = asyncio.get_running_loop().time(), len([one for one in scene.sender.sent if one[0] == "slow"])
        await asyncio.sleep(0.3)
        await until(lambda: len([one for one in scene.sender.sent if one[0] == "slow"]) > tried)
        rests = (asyncio.get_running_loop().time() - before) / 0.02
        tried = len([one for one in scene.sender.sent if one[0] == "slow"]) - tried
        assert 0 < tried <= rests + EACH, "one attempt an interval, not one for each alarm"
        assert scene.outbox.states()["pending"] == 1000
        away = False
        await until(lambda: scene.outbox.states()["delivered"] == 2000)


async def test_memory_does_not_grow_with_what_waits() -> None:
    async with Scene(FakeSender(lambda to, one: asyncio.Event().wait())) as scene:  # type: ignore[arg-type, return-value]
        scene.outbox.store(*many(20_000))
        for one in many(20_000):
            scene.outbox.made(one)
        await asyncio.sleep(0.1)
        (lane,) = scene.deliverer.ready._lanes.values()
        assert len(lane.known) <= MOST_WAITING + EACH
        assert scene.outbox.most <= 2 * MOST_WAITING


async def test_hanging_destinations_of_a_project_leave_room_for_others() -> None:
    ends = asyncio.Event()

    async def answer(to: Destination, one: Alarm) -> Outcome:
        if to.project == "acme":
            await ends.wait()
        return Outcome(status=200)

    hooks = [destination("http://receiver.example/", id=f"hook-{number}") for number in range(40)]
    other = msgspec.structs.replace(QUICK, project="other")
    async with Scene(FakeSender(answer), *hooks, other) as scene:
        scene.outbox.make(*many(8, *(hook.id for hook in hooks)))
        await until(lambda: scene.sender.now.total() == CONCURRENCY // 2)
        await asyncio.sleep(0.02)
        assert scene.sender.now.total() == CONCURRENCY // 2
        scene.outbox.make(*(msgspec.structs.replace(one, project="other", session="o") for one in many(100, "quick")))
        await until(lambda: scene.outbox.states()["delivered"] == 100)
        ends.set()
        await until(lambda: scene.outbox.states()["delivered"] == 420)
        assert not scene.deliverer.ready._running


async def test_outcome_that_cannot_be_noted_now_is_not_sent_again() -> None:
    async with Scene() as scene:
        scene.outbox.errors = [Unavailable("the log is away")] * 3
        scene.outbox.make(alarm())
        await until(lambda: scene.delivery().state == "delivered")
        assert len(scene.sender.sent) == 1


async def test_partition_of_another_node_is_left_to_it() -> None:
    async with Scene() as scene:
        scene.outbox.errors = [NotOwned("another node owns it")]
        scene.outbox.make(alarm())
        await until(lambda: scene.delivery().state == "delivered")
        assert len(scene.sender.sent) == 2


async def test_damaged_alarm_ends_no_agent() -> None:
    async with Scene() as scene:
        scene.outbox.errors = [Damaged()]
        scene.outbox.make(alarm())
        await until(lambda: scene.delivery().state == "delivered")


async def test_database_that_is_away_delays_alarms_only() -> None:
    async with Scene() as scene:
        scene.destinations.down = True
        scene.outbox.make(*many(100))
        await asyncio.sleep(0.05)
        assert scene.outbox.noted == []
        scene.destinations.down = False
        await until(lambda: scene.outbox.states()["delivered"] == 100)


async def test_fault_of_a_sender_ends_no_agent() -> None:
    async with Scene(FakeSender(lambda to, one: 1 / 0)) as scene:  # type: ignore[arg-type, return-value]
        with capture_logs() as logs:
            scene.outbox.make(alarm())
            await until(lambda: scene.delivery().attempts == 1)
    assert scene.delivery().error == "the service failed to send it"
    assert [one["event"] for one in logs] == ["delivery.broken"]


async def test_attempt_of_any_kind_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliverer, "MOST_ATTEMPT_SECONDS", 0.02)

    async def answer(to: Destination, one: Alarm) -> Outcome:
        await asyncio.Event().wait()
        return Outcome(status=200)

    async with Scene(FakeSender(answer)) as scene:
        scene.outbox.make(alarm())
        await until(lambda: scene.delivery().attempts == 1)
        assert scene.delivery().error == "it took longer than 0.02 s"


async def test_log_has_a_line_when_a_destination_fails_and_when_it_works() -> None:
    fails = True
    secret = destination("http://user:hunter2@receiver.example/", password="hunter2")

    def answer(to: Destination, one: Alarm) -> Outcome:
        return Outcome("no connection", away=True) if fails else Outcome(status=200)

    with capture_logs() as logs:
        async with Scene(FakeSender(answer), secret, retries=(0.0,) * 100) as scene:
            scene.outbox.make(*many(20))
            await until(lambda: logs)
            await asyncio.sleep(0.05)
            fails = False
            await until(lambda: scene.outbox.states()["delivered"] == 20)
    assert [one["event"] for one in logs] == ["delivery.failing", "delivery.works"]
    assert "hunter2" not in repr(logs)


async def test_receiver_that_fails_now_and_then_is_neither_logged_nor_rests() -> None:
    async def answer(to: Destination, one: Alarm) -> Outcome:
        return [Outcome(status=200), Outcome("no connection", away=True), verdict(500)][len(scene.sender.sent) % 3]

    with capture_logs() as logs:
        async with Scene(FakeSender(answer), retries=(0.0,) * 100) as scene:
            # It moves with each attempt, however busy the machine is, and not in a rest, which would not end.
            scene.deliverer.ready._clock = lambda: len(scene.sender.sent) / 100
            scene.outbox.make(*many(200))
            await until(lambda: scene.outbox.states()["delivered"] == 200)
    assert not logs


async def test_metrics_count_attempts_and_the_oldest_alarm() -> None:
    answers = [verdict(200), verdict(500), verdict(410)]
    async with Scene(FakeSender(lambda to, one: answers[one.sequence])) as scene:
        for one in many(3):
            scene.outbox.make(one)
            await until(lambda: len(scene.outbox.noted) == len(scene.sender.sent))
        await until(lambda: len(scene.outbox.noted) == 3)
        found = {(one.name, *one.labels.values()): one.value for one in scene.deliverer.readings()}
    assert found["earshot_alarm_deliveries_total", "webhook", "delivered"] == 1
    assert found["earshot_alarm_deliveries_total", "webhook", "retried"] == 1
    assert found["earshot_alarm_deliveries_total", "webhook", "failed"] == 1
    assert found["earshot_alarm_deliveries_total", "mqtt", "failed"] == 0
    assert found["earshot_alarm_oldest_seconds",] == (scene.outbox.now - alarm().made_at) / 1000
    assert found["earshot_alarm_deliveries_waiting",] == 1
    assert len(found) == 14
