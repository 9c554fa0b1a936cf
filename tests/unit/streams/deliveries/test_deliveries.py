"""The deliveries of a node, put together: test messages, and what they take from alarms."""

import asyncio
from typing import Any

import pytest

from streams.agents import NodeApp
from streams.deliveries import deliveries
from streams.deliveries.deliveries import Deliveries
from streams.deliveries.options import DeliveryOptions, parse_networks
from tests.unit.streams.clients.http_engine import HttpEngine, reply
from tests.unit.streams.deliveries.alarms import destination
from tests.unit.streams.deliveries.outbox import FakeDestinations, FakeOutbox
from tests.unit.streams.deliveries.test_mqtt import FakeRules
from tests.waiting import until
from topics.alarms.alarms import Delivery
from topics.errors import BadRequest

NOW = 1_780_000_100_000


def put_together() -> Deliveries:
    options = DeliveryOptions(parse_networks("127.0.0.0/8"), (0.0,))
    return Deliveries(
        NodeApp(), options, FakeOutbox(), FakeDestinations(), FakeRules(), lambda project: {}, lambda: NOW
    )


@pytest.mark.parametrize(("status", "state", "error"), [(204, "delivered", None), (404, "failed", "it answered 404")])
async def test_test_message_is_sent_once(status: int, state: Any, error: str | None) -> None:
    receiver = HttpEngine(reply(b"", status))
    async with receiver.running():
        one = put_together()
        assert await one.test(destination(receiver.url)) == Delivery("hook", state, 1, NOW, status, error)
        await one.on_shutdown()
    [asked] = receiver.asked
    assert asked.json["data"]["what"] == "test"


async def test_destination_is_checked() -> None:
    with pytest.raises(BadRequest, match=r"10\.0\.0\.1 is not a public address"):
        put_together().check(destination("http://10.0.0.1/"))


async def test_hanging_test_messages_take_no_connection_from_alarms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "TESTS", 2)
    receiver = HttpEngine(reply(b"", 204))
    receiver.may_answer = lambda asked: asked.path == "/alarm"
    async with receiver.running():
        one = put_together()
        hanging = [asyncio.create_task(one.test(destination(f"{receiver.url}/test"))) for _ in range(5)]
        await until(lambda: len(receiver.asked) == 2)
        alarms, _ = one._posters
        assert (await alarms.post(f"{receiver.url}/alarm", (), b"{}")).status == 204
        for task in hanging:
            task.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)
        await one.on_shutdown()
    assert [asked.path for asked in receiver.asked] == ["/test", "/test", "/alarm"]
