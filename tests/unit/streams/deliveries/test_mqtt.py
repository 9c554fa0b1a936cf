"""Alarms at a real broker, and what Home Assistant is told."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiomqtt
import msgspec
import pytest
from structlog.testing import capture_logs

from streams.deliveries import broker_socket, brokers, mqtt
from streams.deliveries.addresses import Resolver
from streams.deliveries.brokers import Brokers
from streams.deliveries.home_assistant import Offer, Source, Topics, device, offer
from streams.deliveries.options import DeliveryOptions, parse_networks
from streams.deliveries.outcome import Outcome
from tests.mosquitto import Mosquitto
from tests.unit.streams.deliveries.alarms import alarm, certified, destination
from tests.unit.streams.deliveries.outbox import FakeDestinations
from tests.waiting import until
from topics.alarms.alarms import Alarm
from topics.alarms.rules import AlarmRule, StoredRule
from topics.ports.alarms import Destination

pytestmark = pytest.mark.slow

SMOKE = AlarmRule("smoke alarm", tags=("Smoke_detector",), destinations=("home",))
CAMERA = AlarmRule(
    "camera", when="source", events=("source.lost", "source.back"), labels={"floor": "2"}, destinations=("home",)
)
KITCHEN = Source("acme", "Küche")


class FakeRules:
    """Implements `topics.ports.alarms.Rules`."""

    def __init__(self, *rules: AlarmRule) -> None:
        self.rules = list(rules)

    def of(self, project: str) -> list[StoredRule]:
        return [StoredRule(f"rule-{number}", "acme", 1, rule) for number, rule in enumerate(self.rules)]


def broker_at(port: int, scheme: str = "mqtt", host: str = "127.0.0.1", **changes: Any) -> Destination:
    given = {"id": "home", "kind": "mqtt", "secrets": (), **changes}
    return destination(f"{scheme}://{host}:{port}", **given)


class House:
    """A node's connections, and what a listener of the broker has heard."""

    def __init__(self, *destinations: Destination, rules: Iterable[AlarmRule] = (SMOKE,), node: str = "node") -> None:
        self.destinations = FakeDestinations(*destinations)
        self.rules = FakeRules(*rules)
        self.sources: Mapping[str | None, Mapping[str, str]] = {}
        options = DeliveryOptions(node=node, version="1.2.3")
        resolver = Resolver(parse_networks("127.0.0.0/8"))
        self.brokers = Brokers(options, resolver, self.destinations, self.rules, lambda project: self.sources)
        self.back: list[str] = []
        self.brokers.is_back = self.back.append

    async def send(self, one: Alarm | None = None) -> Outcome:
        return await self.brokers.send(self.destinations.known["home"], one or alarm())


@asynccontextmanager
async def running(house: House) -> AsyncIterator[House]:
    keeping = asyncio.create_task(house.brokers.run())
    try:
        yield house
    finally:
        keeping.cancel()
        await house.brokers.close()


@asynccontextmanager
async def heard(broker: Mosquitto, **given: Any) -> AsyncIterator[list[aiomqtt.Message]]:
    """Yield all messages that a listener gets from now on, retained ones first."""
    messages: list[aiomqtt.Message] = []
    async with aiomqtt.Client("127.0.0.1", broker.port, **given) as client:
        await client.subscribe("#", qos=1)

        async def listen() -> None:
            async for message in client.messages:
                messages.append(message)  # noqa: PERF401 (others read it meanwhile)

        listening = asyncio.create_task(listen())
        try:
            yield messages
        finally:
            listening.cancel()


def on(messages: Iterable[aiomqtt.Message], topic: str) -> list[Any]:
    """Return what came on a topic."""
    return [json.loads(one.payload) for one in messages if one.topic.value == topic]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mqtt, "SETTLE_SECONDS", 0.01)
    monkeypatch.setattr(mqtt, "FIRST_PAUSE", 0.05)
    monkeypatch.setattr(mqtt, "LONGEST_PAUSE", 0.05)
    monkeypatch.setattr(brokers, "LOOK_SECONDS", 0.05)


@pytest.fixture
def broker(tmp_path: Path) -> Any:
    with Mosquitto(tmp_path) as started:
        yield started


def topics(house: House) -> Topics:
    return house.brokers._connections["home"].topics


@pytest.mark.usefixtures("quick")
async def test_alarm_is_an_event_of_a_device_that_was_told_before(broker: Mosquitto) -> None:
    async with heard(broker) as messages, running(House(broker_at(broker.port))) as house:
        assert await house.send() == Outcome()
        names = topics(house)
        await until(lambda: on(messages, names.alarm(KITCHEN)))
        order = [one.topic.value for one in messages]
        assert order == [names.status, names.discovery(KITCHEN), names.alarm(KITCHEN)]
        assert messages[0].payload == b"online"
        told, event = on(messages, order[1])[0], on(messages, order[2])[0]
        assert event["event_type"] == "smoke alarm"
        assert (event["sequence"], event["session"], event["tags"]) == (
            3,
            "Zm9vYmFy",
            [{"name": "Smoke_detector", "probability": 0.9312}],
        )
        assert told == {
            "device": {
                "identifiers": [f"earshot_{KITCHEN.id}"],
                "name": "Küche",
                "manufacturer": "Earshot",
                "sw_version": "1.2.3",
            },
            "origin": {"name": "Earshot", "sw_version": "1.2.3"},
            "availability_topic": names.status,
            "components": {
                "alarm": {
                    "platform": "event",
                    "unique_id": f"earshot_{KITCHEN.id}_alarm",
                    "name": "Alarm",
                    "state_topic": names.alarm(KITCHEN),
                    "event_types": ["smoke alarm"],
                },
                "connected": {"platform": "binary_sensor"},
            },
        }
        async with heard(broker) as kept:
            await until(lambda: len(kept) == 2)
            assert {one.topic.value for one in kept} == {names.status, names.discovery(KITCHEN)}, "no event is kept"
    async with heard(broker) as kept:
        await until(lambda: len(kept) == 2)
        assert {one.topic.value: one.payload for one in kept}[names.status] == b"offline"


@pytest.mark.usefixtures("quick")
async def test_sources_are_told_before_their_first_alarm_and_when_rules_change(broker: Mosquitto) -> None:
    house = House(broker_at(broker.port), rules=(SMOKE,))
    async with heard(broker) as messages, running(house):
        await asyncio.sleep(0.1)
        assert not messages, "nobody listens to a source of this project here"
        house.sources = {"Küche": {"floor": "2"}, None: {}}
        await until(lambda: len(messages) == 3)
        names = topics(house)
        assert on(messages, names.discovery(Source("acme", None)))[0]["device"]["name"] == "Streams without a name"
        house.rules.rules.append(CAMERA)
        await until(lambda: len(on(messages, names.discovery(KITCHEN))) == 2)
        changed = on(messages, names.discovery(KITCHEN))[1]["components"]
        assert changed["alarm"]["event_types"] == ["camera", "smoke alarm"]
        assert changed["connected"] == {
            "platform": "binary_sensor",
            "unique_id": f"earshot_{KITCHEN.id}_connected",
            "name": "Connection",
            "device_class": "connectivity",
            "state_topic": names.connected(KITCHEN),
        }
        assert len(messages) == 4, "the other source does not have the label"
        async with aiomqtt.Client("127.0.0.1", broker.port) as home_assistant:
            await home_assistant.publish("homeassistant/status", "online")
        await until(lambda: len(on(messages, names.discovery(KITCHEN))) == 3)


@pytest.mark.usefixtures("quick")
async def test_alarms_of_a_lost_source_keep_its_state(broker: Mosquitto) -> None:
    house = House(broker_at(broker.port), rules=(CAMERA,))
    house.sources = {"Küche": {"floor": "2"}}
    async with running(house):
        for what, state in (("source.lost", b"OFF"), ("source.back", b"ON")):
            assert await house.send(alarm(what=what, rule_name="camera")) == Outcome()
            async with heard(broker) as kept:
                await until(lambda: len(kept) == 3)
                assert {one.topic.value: one.payload for one in kept}[topics(house).connected(KITCHEN)] == state
        late = alarm(what="source.lost", rule_name="camera", made_at=1_780_000_003_999)
        assert await house.send(late) == Outcome(), "it failed before, and the source has come back since"
        async with heard(broker) as kept:
            await until(lambda: len(kept) == 3)
            assert {one.topic.value: one.payload for one in kept}[topics(house).connected(KITCHEN)] == b"ON"


@pytest.mark.usefixtures("quick")
async def test_event_of_a_rule_that_was_renamed_is_declared(broker: Mosquitto) -> None:
    async with heard(broker) as messages, running(House(broker_at(broker.port))) as house:
        assert await house.send(alarm(rule_name="old name")) == Outcome()
        await until(lambda: on(messages, topics(house).alarm(KITCHEN)))
        [told] = on(messages, topics(house).discovery(KITCHEN))
        assert told["components"]["alarm"]["event_types"] == ["old name", "smoke alarm"]


@pytest.mark.usefixtures("quick")
async def test_killed_broker_comes_back(broker: Mosquitto) -> None:
    async with running(House(broker_at(broker.port))) as house:
        assert await house.send() == Outcome()
        await asyncio.to_thread(broker.stop, kill=True)
        await until(lambda: house.brokers._connections["home"]._client is None)
        lost = await house.send()
        assert lost.away
        assert lost.error is not None
        before = len(house.back)
        await asyncio.to_thread(broker.start)
        await until(lambda: len(house.back) > before)
        assert await house.send() == Outcome()
        async with heard(broker) as kept:
            await until(lambda: len(kept) == 2)
            assert {one.topic.value for one in kept} == {topics(house).status, topics(house).discovery(KITCHEN)}


@pytest.mark.usefixtures("quick")
async def test_last_will_tells_of_a_node_that_died(broker: Mosquitto) -> None:
    house = House(broker_at(broker.port))
    async with running(house), heard(broker) as messages:
        await house.send()
        await until(lambda: len(messages) == 3)
        client = house.brokers._connections["home"]._client
        assert client is not None
        client.socket._sock.shutdown(socket.SHUT_RDWR)
        await until(lambda: [one.payload for one in messages if one.topic.value == topics(house).status][1:2])
        assert [one.payload for one in messages if one.topic.value == topics(house).status][1] == b"offline"


@pytest.mark.usefixtures("quick")
async def test_source_that_returns_to_a_node_is_told_again(broker: Mosquitto) -> None:
    first, second = House(broker_at(broker.port), node="first"), House(broker_at(broker.port), node="second")
    async with heard(broker) as messages, running(first), running(second):

        async def kitchen_is_at(house: House, told: int) -> None:
            first.sources = second.sources = {"garden": {}}
            house.sources = {"garden": {}, KITCHEN.name: {}}
            await until(lambda: "home" in house.brokers._connections)
            place = topics(house).discovery(KITCHEN)
            await until(lambda: len(on(messages, place)) == told)

        await kitchen_is_at(first, 1)
        await kitchen_is_at(second, 2)
        await kitchen_is_at(first, 3)


@pytest.mark.usefixtures("quick")
async def test_connection_that_loses_a_cancellation_is_closed(
    broker: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def serve(self: mqtt.Connection, client: aiomqtt.Client) -> None:
        self._settled.set()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        await asyncio.sleep(60)

    monkeypatch.setattr(mqtt.Connection, "_serve", serve)
    async with asyncio.timeout(20), running(House(broker_at(broker.port))) as house:
        assert (await house.send()).away


@pytest.mark.usefixtures("quick")
async def test_devices_are_available_while_one_node_lives(broker: Mosquitto) -> None:
    first, second, third = (House(broker_at(broker.port), node=node) for node in ("first", "second", "third"))
    async with heard(broker) as messages:

        def said() -> list[bytes]:
            return [one.payload for one in messages if one.topic.value == topics(first).status]

        async with running(first):
            async with running(second), running(third):
                for house in (first, second, third):
                    assert await house.send() == Outcome()
                client = third.brokers._connections["home"]._client
                assert client is not None
                client.socket._sock.shutdown(socket.SHUT_RDWR)
                await until(lambda: b"offline" in said() and said()[-1] == b"online")
                messages.clear()
            await until(lambda: b"offline" in said() and said()[-1] == b"online")
        await until(lambda: said()[-1] == b"offline")


@pytest.mark.usefixtures("quick")
async def test_sources_beyond_the_limit_push_none_out(broker: Mosquitto, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers, "MOST_SOURCES", 3)
    monkeypatch.setattr(mqtt, "MOST_SOURCES", 3)
    house = House(broker_at(broker.port))
    house.sources = {f"camera {number}": {} for number in range(5)}
    async with heard(broker) as messages, running(house):
        await until(lambda: len(messages) == 4)
        await asyncio.sleep(0.3)
        assert len(messages) == 4, "its status and three devices"


@pytest.mark.usefixtures("quick")
async def test_user_and_password(tmp_path: Path) -> None:
    with Mosquitto(tmp_path, users={"ann": "päss"}) as broker:
        async with running(House(broker_at(broker.port, user="ann", password="wrong"))) as house:
            refused = await house.send()
            assert refused.error == "the broker refuses the connection: [code:135] Not authorized"
            assert refused.away
            house.destinations.known["home"] = broker_at(broker.port, user="ann", password="päss")
            assert await house.send() == Outcome(), "its settings have changed"


@pytest.mark.usefixtures("quick")
async def test_tls_by_the_name_of_the_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, _ = await asyncio.to_thread(certified, tmp_path, "broker.example")
    trusted = ssl.create_default_context(cafile=certificate)
    monkeypatch.setattr(mqtt, "tls", lambda: trusted)

    async def here(self: object, host: str) -> list[str]:
        return ["127.0.0.1"]

    monkeypatch.setattr(Resolver, "addresses", here)
    with Mosquitto(tmp_path, tls=True) as broker:
        good = broker_at(broker.port, "mqtts", "broker.example")
        async with running(House(good)) as house:
            assert await house.send() == Outcome()
            big = alarm(labels={"x": "y" * 100_000})
            assert await house.send(big) == Outcome(), "it takes several writes"
        async with running(House(broker_at(broker.port, "mqtts", "other.example"))) as house:
            refused = await house.send()
            assert refused.error is not None
            assert refused.error.startswith("no TLS with the broker: CERTIFICATE_VERIFY_FAILED")


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
CONNACK, SUBACK = b"\x20\x02\x00\x00", b"\x90\x03\x00\x02\x00"


@asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[int]:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.usefixtures("quick")
async def test_broker_that_is_away_costs_one_attempt_an_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    attempts = 0
    connect = broker_socket.open_socket

    async def counted(*given: Any) -> Any:
        nonlocal attempts
        attempts += 1
        return await connect(*given)

    monkeypatch.setattr(mqtt, "open_socket", counted)
    async with running(House(broker_at(port))) as house:
        began = asyncio.get_running_loop().time()
        outcomes = [await house.send() for _ in range(200)]
        passed = asyncio.get_running_loop().time() - began
    assert attempts <= 1 + passed / 0.04
    assert {one.away for one in outcomes} == {True}
    assert outcomes[0].error == "no connection: Connection refused"


@pytest.mark.usefixtures("quick")
async def test_broker_that_never_answers_holds_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mqtt, "ACKNOWLEDGE_SECONDS", 0.2)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        await asyncio.sleep(60)

    async with serving(silent) as port, running(House(broker_at(port))) as house:
        late = await house.send()
        assert late == Outcome("Operation timed out", away=True)


@pytest.mark.usefixtures("quick")
async def test_tls_that_never_ends_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mqtt, "CONNECT_SECONDS", 0.2)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    async with serving(silent) as port, running(House(broker_at(port, scheme="mqtts"))) as house:
        assert await house.send() == Outcome("it did not answer within 0.2 s", away=True)


@pytest.mark.usefixtures("quick")
async def test_broker_that_sends_too_much_is_cut_off() -> None:
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.read(1000)
        writer.write(CONNACK)
        await reader.read(1000)
        writer.write(b"\x40\x02" + struct.pack(">H", 1))
        await reader.read(1000)
        writer.write(SUBACK + b"\x30\xff\xff\xff\x7f\x00\x01x")  # A message of 256 MB.
        while sent < 50_000_000:
            writer.write(bytes(50_000))
            await writer.drain()
            sent += 50_000

    async with serving(flood) as port, running(House(broker_at(port))) as house:
        cut = await house.send()
        assert cut.away
        await until(lambda: house.brokers._connections["home"]._client is None)
    assert sent < 20_000_000, "what the kernel holds besides"


@pytest.mark.usefixtures("quick")
async def test_large_retained_message_holds_no_alarm(broker: Mosquitto) -> None:
    async with aiomqtt.Client("127.0.0.1", broker.port) as other:
        await other.publish("homeassistant/status", bytes(1_000_000), qos=1, retain=True)
    with capture_logs() as lines:
        async with running(House(broker_at(broker.port))) as house:
            await house.send()
            await until(lambda: lines)
            await until(lambda: house.brokers._connections["home"]._client is not None)
            assert await house.send() == Outcome()
    assert [(line["event"], line["topic"]) for line in lines] == [("broker.not_heard", "homeassistant/status")]


@pytest.mark.usefixtures("quick")
async def test_broker_that_breaks_the_protocol_is_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(mqtt, "ACKNOWLEDGE_SECONDS", 0.05)
    monkeypatch.setattr(mqtt, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(mqtt, "LONGEST_PAUSE", 0.001)
    chance = random.Random(1)

    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers = [CONNACK, b"\x40\x02\x00\x01", SUBACK][: chance.randrange(4)]
        for answer in (*answers, chance.randbytes(chance.randrange(1, 100)), b"\x20\x02\x00" + chance.randbytes(1)):
            await reader.read(1000)
            writer.write(answer)

    async with serving(babble) as port, running(House(broker_at(port))) as house:
        for _ in range(50):
            assert (await house.send()).away
            await asyncio.sleep(0.005)
    gc.collect()
    assert not caplog.records, "neither asyncio nor the library logs each attempt"


@pytest.mark.usefixtures("quick")
async def test_broker_that_floods_at_once_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(CONNACK + b"\x30\x80\x80\x80\x08\x00\x01x" + bytes(100_000))
        writer.write(bytes(1_000_000))
        await writer.drain()

    async with serving(flood) as port, running(House(broker_at(port))) as house:
        assert (await house.send()).away
    gc.collect()
    assert not caplog.records


@pytest.mark.usefixtures("quick")
async def test_test_message_has_a_topic_of_its_own(broker: Mosquitto) -> None:
    async with heard(broker) as messages, running(House(broker_at(broker.port))) as house:
        assert await house.send(alarm(what="test", source=None)) == Outcome()
        await until(lambda: on(messages, "earshot/test"))
        assert len(messages) == 2


async def test_private_broker_is_refused() -> None:
    house = House(broker_at(1883))
    house.brokers._resolver = Resolver()
    async with running(house):
        refused = await house.send()
    assert refused.error == "127.0.0.1 has no public address, and deliveries go to public addresses only"


NAMES = ("Küche", "a/b+c#d", "../../etc", "", "x" * 500, "🔥", "$SYS/broker", "a\0b", None)


def test_names_are_safe_in_topics_and_differ() -> None:
    sources = [Source("acme", name) for name in NAMES] + [Source("other", "Küche")]
    ids = [one.id for one in sources]
    assert len(set(ids)) == len(sources)
    for id in ids:
        assert id.isascii()
        assert id.replace("_", "").replace("-", "").isalnum()
        assert len(id) <= 41
    assert KITCHEN.id.startswith("k_che_")


@pytest.mark.parametrize(
    ("options", "status", "birth"),
    [
        ({}, "earshot/status/home", "homeassistant/status"),
        ({"base": "/my house/ears#/", "discovery": "ha"}, "my_house/ears_/status/home", "ha/status"),
        ({"base": "//", "discovery": ""}, "earshot/status/home", "homeassistant/status"),
    ],
)
def test_base_of_topics_is_an_option(options: dict[str, str], status: str, birth: str) -> None:
    found = Topics(broker_at(1, options=options))
    assert (found.status, found.birth) == (status, birth)


def test_offer_has_the_rules_that_apply() -> None:
    rules = FakeRules(
        SMOKE,
        CAMERA,
        msgspec.structs.replace(SMOKE, name="off", enabled=False),
        msgspec.structs.replace(SMOKE, name="elsewhere", destinations=("other",)),
        msgspec.structs.replace(SMOKE, name="barn", source="barn"),
    ).of("acme")
    assert offer(rules, "home", KITCHEN, {"floor": "2", "room": "x"}) == Offer(
        frozenset({"smoke alarm", "camera"}), connects=True
    )
    assert offer(rules, "home", Source("acme", "barn"), {}) == Offer(frozenset({"smoke alarm", "barn"}), connects=False)
    assert b'"event_types":["a","b"]' in device(
        Topics(broker_at(1)), KITCHEN, Offer(frozenset("ba"), connects=False), "1"
    )
