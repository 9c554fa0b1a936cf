"""Whether the log is the one of before: by what nodes have seen of it, and what brokers say now."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from streams.kafka import log_watch as module
from streams.kafka.connection import KafkaConnection
from streams.kafka.log_watch import WATCHED, LogWatch
from streams.kafka.topic_state import TopicState
from streams.kafka.topics import denied, differences, few_copies
from tests.unit.streams.kafka.producers import User
from tests.waiting import until
from topics.catalog import CHANGELOG, COMMANDS, TopicPartition, topics
from topics.errors import Unavailable
from topics.ports.seen_log import SeenLog, SeenTopic

ROWS, CHUNKS = TopicPartition(CHANGELOG, 0), TopicPartition(COMMANDS, 1)


class Brokers:
    """Brokers with two partitions of each topic, and the memory of the nodes that use them."""

    def __init__(self) -> None:
        self.states = {topic.name: TopicState("a", 2, 3) for topic in topics(0)}
        self.bounds = {TopicPartition(name, number): (0, 10) for name in WATCHED for number in range(2)}
        self.of_settings: dict[str, Mapping[str, str]] = {}
        self.kept: SeenLog | None = None
        self.away = False
        self.writes = 0

    # --- as `TopicStates` ---

    def describe(self, names: list[str]) -> dict[str, TopicState]:
        if self.away:
            raise Unavailable("Kafka does not answer")
        return dict(self.states)

    def settings(self, names: list[str]) -> dict[str, Mapping[str, str]]:
        return self.of_settings

    def brokers(self) -> int:
        return 3

    # --- as `LogMemory` ---

    async def seen(self) -> SeenLog | None:
        return self.kept

    async def update(self, change: Callable[[SeenLog | None], SeenLog]) -> SeenLog:
        self.writes += 1
        self.kept = change(self.kept)
        return self.kept


class Watcher:
    """A node that watches brokers."""

    def __init__(self, brokers: Brokers) -> None:
        self.user = User()
        self.brokers = brokers
        #: Whether answers of the brokers arrive.
        self.arrives = asyncio.Event()
        self.arrives.set()

        async def bounds(tps: Any) -> dict[TopicPartition, tuple[int, int]]:
            answer = {tp: brokers.bounds[tp] for tp in tps}
            await self.arrives.wait()
            return answer

        self.watch = LogWatch(KafkaConnection(("a:1",)), topics(0), 2, None, bounds, brokers)

    async def start(self) -> None:
        user: Any = self.user
        await self.watch.start(user, self.brokers.states)

    async def look(self) -> None:
        """Look, as every few seconds."""
        await self.watch._poll(with_settings=True)


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    brokers = Brokers()
    monkeypatch.setattr(module, "TopicStates", lambda connection: brokers)
    return brokers


async def started(brokers: Brokers) -> Watcher:
    watcher = Watcher(brokers)
    await watcher.start()
    return watcher


async def test_lost_end_stops_partition_on_all_nodes_and_later_starts(brokers: Brokers) -> None:
    one, other = await started(brokers), await started(brokers)
    brokers.bounds[CHUNKS] = (0, 9)
    await one.look()
    assert one.user.stopped.keys() == {1}
    assert f"{COMMANDS}/1 ends at offset 9, and there were records up to 10" in one.user.stopped[1]
    # The end has grown again before the others look.
    brokers.bounds[CHUNKS] = (0, 20)
    await other.look()
    assert other.user.stopped == one.user.stopped
    assert (await started(brokers)).user.stopped == one.user.stopped
    assert other.watch.fault(1) == one.user.stopped[1]
    assert other.watch.fault(0) is None


async def test_node_without_tables_knows_ends_of_before(brokers: Brokers) -> None:
    one = await started(brokers)
    brokers.bounds[ROWS] = (0, 500)
    await one.look()
    brokers.bounds[ROWS] = (0, 499)
    assert (await started(brokers)).user.stopped.keys() == {0}


async def test_answer_that_others_have_overtaken_is_no_loss(brokers: Brokers) -> None:
    one, other = await started(brokers), await started(brokers)
    one.arrives.clear()
    asked = asyncio.create_task(one.watch.bounds([ROWS]))
    await asyncio.sleep(0)
    brokers.bounds[ROWS] = (0, 11)
    await other.look()
    one.watch._adopt(brokers.kept)
    one.arrives.set()
    assert await asked == {ROWS: (0, 10)}
    assert not one.user.stopped
    brokers.bounds[ROWS] = (0, 10)
    await one.watch.bounds([ROWS])
    assert one.user.stopped.keys() == {0}


async def test_removed_rows_stop_partition_unlike_expired_records(brokers: Brokers) -> None:
    one = await started(brokers)
    brokers.bounds |= {ROWS: (10, 10), CHUNKS: (10, 10)}
    await one.look()
    assert one.user.stopped.keys() == {0}
    assert "rows were removed" in one.user.stopped[0]


async def test_writer_that_finds_records_gone_stops_partition(brokers: Brokers) -> None:
    one = await started(brokers)
    one.watch.note_loss(ROWS, 10, 4)
    await until(lambda: brokers.kept is not None and brokers.kept.lost)
    assert one.user.stopped.keys() == {0}
    assert brokers.kept is not None
    assert brokers.kept.lost == one.user.stopped, "other nodes must know at once"
    await one.watch.stop()


@pytest.mark.parametrize(("state", "words"), [(TopicState("b", 2, 3), "made again"), (None, "deleted")])
async def test_topic_made_again_or_deleted_stops_all(brokers: Brokers, state: TopicState | None, words: str) -> None:
    one = await started(brokers)
    brokers.states.pop(COMMANDS)
    if state is not None:
        brokers.states[COMMANDS] = state
    await one.look()
    assert one.user.stopped.keys() == {0, 1}
    assert f"topic {COMMANDS} was deleted" in one.user.stopped[0]
    assert words in one.user.stopped[0]
    assert one.watch.fault(1)


async def test_quiet_log_is_written_down_once(brokers: Brokers) -> None:
    one = await started(brokers)
    before = brokers.writes
    for _ in range(3):
        await one.look()
    assert brokers.writes == before
    brokers.bounds[ROWS] = (0, 11)
    await one.look()
    assert brokers.writes == before + 1


async def test_running_node_does_not_undo_operators_acceptance(brokers: Brokers) -> None:
    one = await started(brokers)
    one.watch.note_loss(ROWS, 10, 4)
    brokers.kept = SeenLog(2)
    brokers.bounds[ROWS] = (0, 11)
    await one.look()
    assert brokers.kept == SeenLog(2)
    later = await started(brokers)
    assert not later.user.stopped
    assert brokers.kept.topics[CHANGELOG] == SeenTopic("a", 2, (0, 0), (11, 10))


async def test_settings_and_copies_are_compared_while_running(brokers: Brokers) -> None:
    one = await started(brokers)
    await one.look()
    assert not one.watch.unfit
    brokers.of_settings = {COMMANDS: {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}}
    brokers.states[CHANGELOG] = TopicState("a", 4, 1, ("WRITE",))
    await one.look()
    said = "\n".join(one.watch.unfit)
    assert "unclean.leader.election.enable=true, needed is false" in said
    assert "min.insync.replicas=1, needed is 2 or more" in said
    assert f"{CHANGELOG} has 1 of 3 copies" in said
    assert f"{CHANGELOG} has 4 partitions, and had 2. Leave EARSHOT_PARTITIONS at 2" in said
    assert f"{CHANGELOG}: the user lacks the right to WRITE" in said
    assert not one.user.stopped, "nothing in the log is lost"


async def test_unavailable_brokers_change_nothing(brokers: Brokers) -> None:
    one = await started(brokers)
    brokers.away = True
    with pytest.raises(Unavailable):
        await one.look()
    assert not one.user.stopped


STATES = {name: TopicState("a", 4, 1) for name in WATCHED}


@pytest.mark.parametrize(
    ("seen", "partitions", "words"),
    [
        (None, 4, []),
        (None, 2, ["both must be as at the first start"] * len(WATCHED)),
        (SeenLog(2), 2, []),
        (SeenLog(8), 8, ["both must be as at the first start"] * len(WATCHED)),
        (SeenLog(2), 4, ["EARSHOT_PARTITIONS is 4, and this service began with 2"]),
        (SeenLog(2, {COMMANDS: SeenTopic("a", 2, (), ())}), 2, ["Leave EARSHOT_PARTITIONS at 2"]),
        (SeenLog(4, {COMMANDS: SeenTopic("z", 4, (), ())}), 4, ["is not the topic of before"]),
        (SeenLog(4, {f"x-{COMMANDS}": SeenTopic("z", 4, (), ())}), 4, ["set EARSHOT_KAFKA_PREFIX as before"]),
    ],
)
def test_start_compares_topics_with_those_of_before(seen: SeenLog | None, partitions: int, words: list[str]) -> None:
    lines = differences(seen, STATES, partitions)
    assert len(lines) == len(words)
    for line, part in zip(lines, words, strict=True):
        assert part in line
        assert "docs/kafka.md" in line


def test_missing_copies_and_rights_are_named() -> None:
    states = {"x": TopicState("a", 4, 1, ("READ", "WRITE")), "y": TopicState("b", 4, 3)}
    assert [line.split(":")[0] for line in few_copies(states, 3)] == ["x has 1 of 3 copies"]
    assert denied(states) == ["x: the user lacks the right to READ and WRITE: add it to the ACLs of the brokers"]
