"""A log that is not the one of before: lost records, topics made again, partitions added."""

import asyncio
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Consumer, admin
from confluent_kafka import TopicPartition as Place

from streams.node.partitions import NOTE_SECONDS
from tests.kafka.broker import Broker, kafka_broker
from tests.process import ServiceProcess, ask
from tests.recovery.load import Client
from tests.waiting import wait_for
from topics import catalog
from topics.folding import Folded
from topics.keys import POSITIONS

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SESSIONS = 12
#: Its module exports nothing, as far as mypy can see.
LIBRARY: Any = admin


class Scene:
    """One node with two partitions, whose database is not in its data directory."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self.broker = broker
        self.node = ServiceProcess(
            directory / "data",
            **broker.settings,
            partitions=2,
            database_url=f"sqlite:///{directory / 'control.db'}",
            model="sed-mini",
            workers=1,
        )
        self.admin: Any = LIBRARY.AdminClient(dict(broker.connection.librdkafka()))
        self.sessions: list[str] = []

    def name(self, topic: str) -> str:
        return self.broker.connection.topic(topic)

    def fill(self) -> None:
        async def opened() -> None:
            async with Client(self.node) as client:
                for _ in range(SESSIONS):
                    stream = await client.open()
                    await client.put(stream, 1)
                    self.sessions.append(stream.session)

        asyncio.run(opened())

    def noted(self) -> int:
        """Return how many commands are folded according to the changelog."""
        consumer: Any = Consumer({**self.broker.connection.librdkafka(), "group.id": "test"})
        changelog, found = self.name(catalog.CHANGELOG), 0
        try:
            for number in range(2):
                first, end = consumer.get_watermark_offsets(Place(changelog, number))
                consumer.assign([Place(changelog, number, first)])
                values = [
                    message.value() for message in consumer.consume(end - first, 10) if message.key() == POSITIONS
                ]
                found += msgspec.msgpack.decode(values[-1], type=Folded).positions[catalog.COMMANDS] if values else 0
        finally:
            consumer.close()
        return found

    def answers(self) -> set[int]:
        """Return the statuses of all sessions."""
        return {ask("GET", f"{self.node.url}/audio_sessions/{one}/status").status_code for one in self.sessions}

    def told(self, words: str) -> bool:
        """Return whether `/readyz` or `earshot cluster` says something."""
        facts = self.node.operate("GET", "/nodes")
        return re.search(words, ask("GET", f"{self.node.url}/readyz").text + str(facts)) is not None

    def refused(self) -> str:
        """Start the node, which must refuse; return what it said."""
        before = len(self.node.log.read_text())
        self.node.start(wait=0)
        wait_for(lambda: not self.node.running, 60)
        assert self.node.process is not None
        assert self.node.process.poll() == 2
        return self.node.log.read_text()[before:]

    def set(self, topic: str, setting: str, value: str) -> None:
        entry = LIBRARY.ConfigEntry(
            setting,
            value,
            incremental_operation=LIBRARY.AlterConfigOpType.SET,
            source=LIBRARY.ConfigSource.UNKNOWN_CONFIG,
        )
        resource = LIBRARY.ConfigResource(LIBRARY.ResourceType.TOPIC, self.name(topic), incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result()

    def make_again(self, topic: str, partitions: int) -> None:
        name = self.name(topic)
        self.admin.delete_topics([name], operation_timeout=30)[name].result()
        wait_for(lambda: name not in self.admin.list_topics(timeout=30).topics)
        config = {"message.timestamp.type": "LogAppendTime", "max.message.bytes": 2**21}
        self.admin.create_topics([LIBRARY.NewTopic(name, partitions, 1, config=config)])[name].result()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with kafka_broker() as broker:
        scene = Scene(broker, tmp_path)
        try:
            yield scene
        finally:
            scene.node.stop()


def test_truncated_changelog_is_not_served_as_if_it_were_whole(scene: Scene) -> None:
    node = scene.node.start()
    scene.fill()
    assert scene.answers() == {200}
    # Positions that are noted later would say that the commands are folded.
    wait_for(lambda: scene.noted() == 2 * SESSIONS)
    time.sleep(2 * NOTE_SECONDS)
    name = scene.name(catalog.CHANGELOG)
    # Kafka removes no records of a topic that is compacted.
    scene.set(catalog.CHANGELOG, "cleanup.policy", "delete")
    for deleted in scene.admin.delete_records([Place(name, number, -1) for number in range(2)]).values():
        deleted.result()
    scene.set(catalog.CHANGELOG, "cleanup.policy", "compact")
    wait_for(lambda: scene.told(f"{name}/0 begins at offset") and scene.told(f"{name}/1 begins at offset"))
    assert scene.answers() == {503}
    # A node without a table knows it too, from the database.
    node.stop()
    node.drop_tables()
    node.start()
    assert scene.answers() == {503}
    node.stop()
    assert "rows were removed" in node.command("accept-log", "--yes")
    node.start()
    assert scene.answers() == {200}, "the commands are still there, and are folded again"


def test_topics_made_again_or_grown_stop_what_depends_on_them(scene: Scene) -> None:
    """Added partitions hold nothing, so the service goes on with those of before, once that is accepted."""
    node = scene.node.start()
    scene.fill()
    names = [scene.name(topic.name) for topic in catalog.topics(0)]
    for grown in scene.admin.create_partitions([LIBRARY.NewPartitions(name, 4) for name in names]).values():
        grown.result()
    node.stop()
    said = scene.refused()
    assert f"{scene.name(catalog.COMMANDS)} has 4 partitions, and had 2. Leave EARSHOT_PARTITIONS at 2" in said
    node.command("accept-log", "--yes")
    node.environment["EARSHOT_PARTITIONS"] = "4"
    assert "EARSHOT_PARTITIONS is 4, and this service began with 2" in scene.refused()
    node.environment["EARSHOT_PARTITIONS"] = "2"
    node.start()
    assert scene.answers() == {200}
    # Made again while the service is idle.
    name = scene.name(catalog.COMMANDS)
    scene.make_again(catalog.COMMANDS, 4)
    wait_for(lambda: scene.told(f"{name} was deleted"))
    assert scene.answers() == {503}
    node.stop()
    assert f"{name} is not the topic of before" in scene.refused()
