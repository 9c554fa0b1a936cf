"""How long an assignment is this node's own, by a clock set by hand."""

import asyncio
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    GroupCoordinatorNotAvailableError,
    InconsistentGroupProtocolError,
    KafkaConnectionError,
    NotCoordinatorForGroupError,
)
from aiokafka.protocol.group import HeartbeatRequest, JoinGroupRequest, SyncGroupRequest
from structlog.testing import capture_logs

from streams.kafka.connection import KafkaConnection
from streams.membership import membership as module
from streams.membership.assignor import Assignor, Plan, _encode
from streams.membership.membership import Coordinator, GroupMembership
from streams.membership.neighbours import Peer
from streams.membership.seal import PLAN, Seal
from streams.ownership import Assignment
from tests.waiting import turn, until
from topics.catalog import COMMANDS
from topics.errors import ServiceError

SESSION = 10.0
URL = "http://here:1"


class Name:
    """The name of a node in a directory that may be a copy."""

    name = "node-1"
    file = Path("node-id")

    def __init__(self) -> None:
        self.is_copy = False
        self.given_up = 0

    def keep(self) -> None:
        self.is_copy = False

    def give_up(self) -> None:
        self.given_up += 1


class Seat:
    """A joined member, its clock, and its callbacks."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.assigned: list[Assignment] = []
        self.lost: list[str] = []
        self.failed: list[BaseException] = []
        self.rejoins = 0
        self.member = GroupMembership(
            KafkaConnection(("a:9092",)), Name(), 16, URL, SESSION, 1, b"secret", lambda: self.now
        )
        self.member._assigned, self.member._lost = self.assigned.append, self.lost.append
        self.member._failed = self.failed.append
        self.member._coordinator = self

    def request_rejoin(self) -> None:
        self.rejoins += 1

    def assign(self, *owned: int, member: str = "") -> None:
        peers = (Peer(member, URL, self.member._assignor.holder.run, 7),)
        plan = Seal(b"secret").put(PLAN, _encode(Plan(0, member, peers, dict.fromkeys(owned, 0), {7: [0]})))
        decided = ConsumerProtocolMemberAssignment(0, [(COMMANDS, list(owned))], plan)
        self.member._assignor.on_assignment(decided)
        self.member.take_assignment(3)

    def hear(self) -> None:
        self.member.heard = self.now


@pytest.fixture
def seat() -> Seat:
    return Seat()


# --- the lease ------------------------------------------------------------------------------------------------------


def test_leases_last_since_last_heartbeat(seat: Seat) -> None:
    """The group may go on without this node: another one may delete what is here before this one may not append."""

    def leases() -> tuple[bool, bool]:
        return seat.member.valid(), seat.member.may_read()

    assert (leases(), seat.member.waiting()) == ((False, False), "the group of nodes to assign partitions")
    seat.hear()
    seat.assign(1, 2)
    assert (leases(), seat.member.waiting()) == ((True, True), None)
    for passed, expected in (
        (4.9, (True, True)),
        (5.0, (True, False)),
        (SESSION - 0.1, (True, False)),
        (SESSION, (False, False)),
    ):
        seat.now = seat.member.heard + passed
        assert leases() == expected
    seat.hear()
    assert leases() == (True, True)


def test_clock_counts_suspended_time() -> None:
    assert time.clock_gettime(time.CLOCK_BOOTTIME) - module.clock() < 60


def test_node_that_leaves_asks_for_an_assignment_without_partitions(seat: Seat) -> None:
    seat.assign(1)
    seat.member.leave()
    assert (seat.rejoins, seat.member._assignor.leaving) == (1, True)
    seat.assign()
    assert [(one.owned, one.generation) for one in seat.assigned] == [(frozenset({1}), 3), (frozenset(), 3)]


# --- requests and answers -------------------------------------------------------------------------------------------


def send(seat: Seat, request_type: Any, code: int, monkeypatch: pytest.MonkeyPatch, heard: bool = False) -> None:
    """Send a request that is answered after 3 s; another one may have been `heard` by then."""

    async def answer(self: object, request: object) -> SimpleNamespace:
        seat.now += 3.0
        if heard:
            seat.hear()
        return SimpleNamespace(error_code=code)

    monkeypatch.setattr(GroupCoordinator, "_send_req", answer)
    asyncio.run(coordinator(seat)._send_req(request_type.__new__(request_type)))


def coordinator(seat: Seat, generation: int = 0, client: object = None) -> Coordinator:
    made = Coordinator.__new__(Coordinator)
    made._membership, made._client = seat.member, client
    made.generation, made.coordinator_id, made.group_id, made.member_id = generation, 3, "g", "m"
    return made


@pytest.mark.parametrize(
    ("request_type", "code", "counts"),
    [
        (HeartbeatRequest, 0, True),
        (HeartbeatRequest, 27, True),
        (HeartbeatRequest, 25, False),
        (HeartbeatRequest, 82, False),
        (SyncGroupRequest, 0, True),
        (SyncGroupRequest, 22, False),
        (JoinGroupRequest, 0, False),
    ],
)
def test_lease_starts_when_accepted_request_was_sent(
    seat: Seat, monkeypatch: pytest.MonkeyPatch, request_type: Any, code: int, counts: bool
) -> None:
    """Not from its answer: the coordinator's own clock began at some time between."""
    sent = seat.now
    send(seat, request_type, code, monkeypatch)
    assert (seat.member.heard == sent) is counts


def test_late_answer_does_not_shorten_lease(seat: Seat, monkeypatch: pytest.MonkeyPatch) -> None:
    send(seat, HeartbeatRequest, 0, monkeypatch, heard=True)
    assert seat.member.heard == seat.now


class Connection:
    """The connection for metadata: notes heartbeats and answers them."""

    def __init__(self, seat: Seat, *answers: int | KafkaConnectionError) -> None:
        self.seat, self.answers = seat, list(answers)
        self.sent: list[tuple[int, str, int, str]] = []

    async def send(self, node: int, request: Any) -> SimpleNamespace:
        if not self.answers:
            await asyncio.Event().wait()
        self.seat.now += 1.0
        self.sent.append((node, request._group, request._generation_id, request._member_id))
        answer = self.answers.pop(0)
        if isinstance(answer, KafkaConnectionError):
            raise answer
        return SimpleNamespace(error_code=answer)


@pytest.mark.parametrize(
    ("request_type", "generation"), [(JoinGroupRequest, 7), (SyncGroupRequest, 7), (JoinGroupRequest, -1)]
)
async def test_heartbeats_go_on_while_node_waits_for_other_members(
    seat: Seat, monkeypatch: pytest.MonkeyPatch, request_type: Any, generation: int
) -> None:
    """aiokafka sends none then; without them each rebalance would end all reads. Before its first join it has none."""
    connection = Connection(seat, *([27, KafkaConnectionError(), 0, 22] if generation > 0 else []))

    async def waits(self: object, request: object) -> SimpleNamespace:
        await turn()
        await until(lambda: not connection.answers)
        return SimpleNamespace(error_code=22)

    monkeypatch.setattr(module, "HEARTBEAT_SECONDS", 0.0)
    monkeypatch.setattr(GroupCoordinator, "_send_req", waits)
    began = seat.now
    await coordinator(seat, generation, connection)._send_req(request_type.__new__(request_type))
    if generation < 0:
        assert (connection.sent, seat.member.valid()) == ([], False)
    else:
        assert connection.sent == [(3, "g", 7, "m")] * 4
        assert seat.member.heard == began + 2.0, "the last of a generation that has ended does not count"
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


# --- assignments ----------------------------------------------------------------------------------------------------


def test_assignment_is_passed_on_and_restarted_node_rejoins(seat: Seat) -> None:
    for member, rejoins in (("", 0), ("of an earlier process", 1)):
        seat.assign(1, 2, member=member)
        assert seat.assigned.pop() == Assignment(
            frozenset({1, 2}), frozenset({7}), {1: URL, 2: URL}, 3, standby_urls={7: []}
        )
        assert seat.rejoins == rejoins


def test_lost_partitions_are_reported_once_and_become_standbys(seat: Seat) -> None:
    seat.hear()
    seat.assign(1, 2)
    for _ in range(2):
        seat.member.lose("the group of nodes has gone on without this one")
    assert seat.lost == ["the group of nodes has gone on without this one"]
    assert seat.member.waiting() is not None
    assert seat.member._assignor.assignment == Assignment(frozenset(), frozenset({1, 2, 7}))
    seat.assign(3)
    assert seat.member.waiting() is None
    # The watch runs every half second, so it misses a lease that expired and was renewed in between.
    for _ in range(2):
        seat.member.give_up("rows were dropped")
    assert (seat.lost[1:], seat.rejoins) == (["rows were dropped"], 1)


async def test_expired_lease_is_given_up_and_node_rejoins(seat: Seat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WATCH_SECONDS", 0.0)
    seat._coordination_task = asyncio.create_task(asyncio.sleep(60))  # type: ignore[attr-defined]
    seat.hear()
    seat.assign(1)
    watching = asyncio.create_task(seat.member._watch())
    for passed, told in ((0, ([], 0)), (SESSION + 2, (["no heartbeat was answered for 12 s"], 1))):
        seat.now += passed
        for _ in range(3):
            await asyncio.sleep(0.001)
        assert (seat.lost, seat.rejoins) == told
    watching.cancel()
    seat._coordination_task.cancel()  # type: ignore[attr-defined]


def test_broker_outage_logs_away_and_back_once(seat: Seat) -> None:
    def look() -> None:
        for _ in range(3):
            seat.member._note_absence()

    with capture_logs() as lines:
        look()  # A node without partitions waits for its first assignment.
        seat.hear()
        seat.assign(1)
        look()
        seat.now += 8.0
        look()
        seat.member.lose("no heartbeat was answered")
        look()
        seat.now += 2.0
        seat.hear()
        look()
        seat.assign(1)
    told = [(line["event"], line["seconds"]) for line in lines if line["event"].startswith("broker.")]
    assert told == [("broker.away", 8), ("broker.back", 10)]


# --- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [KafkaConnectionError(), NotCoordinatorForGroupError()])
def test_temporary_error_is_retried(seat: Seat, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr(module, "HEARTBEAT_SECONDS", 0.0)
    asyncio.run(asyncio.wait_for(seat.member.on_error(error), 30))
    assert seat.failed == []


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (InconsistentGroupProtocolError(), "run in this group: stop all of them first"),
        (GroupAuthorizationFailedError("g"), "GroupAuthorizationFailed"),
        (AssertionError("a bug"), "a bug"),
    ],
)
async def test_permanent_error_stops_node(seat: Seat, error: Exception, message: str) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(seat.member.on_error(error), 0.02)
    [failure] = seat.failed
    assert message in repr(failure)


# --- two holders of one name ------------------------------------------------------------------------------------------


class Described:
    """A coordinator that describes the group, and what it was asked."""

    def __init__(self, seat: Seat, *members: tuple[str, bytes]) -> None:
        self.members = list(members)
        #: What the member says in the next answers.
        self.later: list[tuple[str, bytes]] = []
        self.seat = seat
        seat.member._coordinator = self

    async def _send_req(self, request: Any) -> Any:
        self.seat.now += 1
        if self.later:
            self.members = [self.later.pop(0)]
        return SimpleNamespace(
            groups=[(0, "g", "Stable", "", "", [(*one[:1], "c", "/h", one[1]) for one in self.members])]
        )


def said_by(assignor: Assignor) -> bytes:
    return bytes(assignor.metadata([COMMANDS]).encode())


def other(secret: bytes = b"secret") -> bytes:
    return said_by(Assignor(COMMANDS, 16, "http://there:2", 1, secret))


@pytest.fixture
def failing(seat: Seat, monkeypatch: pytest.MonkeyPatch) -> Seat:
    async def failed(error: BaseException) -> None:
        seat.failed.append(error)
        raise error

    async def slept(seconds: float) -> None: ...

    monkeypatch.setattr(seat.member, "on_error", failed)
    monkeypatch.setattr(module, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": slept}))
    return seat


@pytest.mark.parametrize("is_copy", [False, True])
async def test_node_whose_name_another_process_has_fails_and_names_both(failing: Seat, is_copy: bool) -> None:
    """A copied directory waits one session for a member that may be dead."""
    name: Any = failing.member._name
    name.is_copy = is_copy
    holder, began = Assignor(COMMANDS, 16, "http://there:2", 1, b"secret"), failing.now
    group = Described(failing, ("node-10-x", b""), ("node-1-x", said_by(holder)))
    with pytest.raises(ServiceError, match="data directory was copied") as refused:
        await failing.member.check_name()
    for words in str(holder.holder), "http://there:2", str(failing.member._assignor.holder):
        assert words in str(refused.value)
    assert name.given_up == 1
    assert failing.now - began == 1 if not is_copy else SESSION < failing.now - began < SESSION + 10
    group.members.clear()
    await failing.member.check_name()
    assert not failing.member.is_doubtful


async def test_own_stranger_and_silent_members_are_no_other_holder(failing: Seat) -> None:
    own = said_by(failing.member._assignor)
    for metadata in own, other(b"guessed"), b"":
        Described(failing, ("node-1-x", metadata))
        await failing.member.check_name()
    assert not failing.failed


async def test_holder_that_is_joining_is_seen_once_the_rebalance_ends(
    failing: Seat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its metadata are missing until then; the older process would take the name back."""
    group = Described(failing)
    group.later = [("node-1-x", b""), ("node-1-x", b""), ("node-1-x", other())]
    with pytest.raises(ServiceError, match="data directory was copied"):
        await failing.member.check_name()


# --- deaths -----------------------------------------------------------------------------------------------------------


class Broker:
    """A client whose broker answers requests to leave."""

    def __init__(self, *codes: int | None) -> None:
        self.codes = list(codes)
        self.left: list[tuple[int, str, str]] = []

    async def send(self, node: int, request: Any) -> Any:
        if (code := self.codes.pop(0)) is None:
            raise KafkaConnectionError
        self.left.append((node, request._group, request._member_id))
        return SimpleNamespace(error_code=code)


async def test_dead_node_leaves_by_its_member_id(seat: Seat) -> None:
    """An unknown member is gone already; other answers are those of a broker that coordinates no longer."""
    peer = Peer("node-2-x", "http://there:2", "r", 7)
    seat.coordinator_id = None  # type: ignore[attr-defined]
    assert not await seat.member._remove(peer, "it died")
    seat.coordinator_id = 3  # type: ignore[attr-defined]
    broker = seat.member._client = Broker(None, 16, 0, 25)
    with capture_logs() as lines:
        assert [await seat.member._remove(peer, "it died") for _ in range(4)] == [False, False, True, True]
    assert broker.left == [(3, "earshot", "node-2-x")] * 3
    assert seat.rejoins == 2
    assert [line["event"] for line in lines] == ["group.dead"]


@pytest.mark.parametrize(
    ("passed", "stops", "is_other", "removals"),
    [(1.0, False, False, 1), (SESSION, False, False, 0), (1.0, True, False, 0), (1.0, False, True, 0)],
    ids=["lives", "its session has ended", "it stops", "another process has its name"],
)
async def test_removal_that_a_process_survives_is_counted(
    failing: Seat,
    monkeypatch: pytest.MonkeyPatch,
    passed: float,
    stops: bool,
    is_other: bool,
    removals: int,
) -> None:
    failing.hear()
    if stops:
        failing.member.neighbours.stop()
    member = coordinator(failing)

    async def answer(self: object, request: object) -> SimpleNamespace:
        failing.now += passed
        return SimpleNamespace(error_code=25)

    monkeypatch.setattr(GroupCoordinator, "_send_req", answer)
    await member._send_req(HeartbeatRequest.__new__(HeartbeatRequest))
    Described(failing, *([("node-1-x", other())] if is_other else []))
    with capture_logs() as lines, suppress(ServiceError):
        await failing.member.check_name()
    assert failing.member.removals == len([line for line in lines if line["event"] == "group.removed"]) == removals


async def test_join_that_the_broker_fails_is_tried_again(failing: Seat, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers that come back answer so for a moment."""
    member, request = coordinator(failing), JoinGroupRequest("earshot", 1, 1, "", "", "consumer", [])
    failing.member.is_doubtful = False
    dead = mock.Mock()
    monkeypatch.setattr(GroupCoordinator, "_send_req", mock.AsyncMock(return_value=SimpleNamespace(error_code=-1)))
    monkeypatch.setattr(member, "coordinator_dead", dead)
    with pytest.raises(GroupCoordinatorNotAvailableError):
        await member._send_req(request)
    dead.assert_called_once_with()


# --- brokers elsewhere ------------------------------------------------------------------------------------------------


class Bootstrap:
    """A client whose bootstrap servers answer, or not."""

    def __init__(self) -> None:
        self.asked = 0
        self.away = True

    async def bootstrap(self) -> None:
        self.asked += 1
        if self.away:
            raise KafkaConnectionError

    async def force_metadata_update(self) -> None: ...


async def test_bootstrap_servers_are_asked_again_while_there_is_no_assignment(seat: Seat) -> None:
    client = seat.member._client = Bootstrap()
    seat.assign(1)
    seat.now += 100
    await seat.member._seek_brokers()
    assert client.asked == 0, "the group may still answer"
    seat.member.lose("no heartbeat was answered")
    for _ in range(100):
        seat.now += 1
        await seat.member._seek_brokers()
    assert 15 < client.asked < 25
    assert not seat.failed, "a restart finds no brokers either"
    client.away = False
    for _ in range(80):
        seat.now += 1
        await seat.member._seek_brokers()
    assert not seat.failed
    for _ in range(20):
        seat.now += 1
        await seat.member._seek_brokers()
    assert "assigned nothing" in str(seat.failed[0])
