"""A node's membership in the consumer group: its partitions, and how long they are certainly its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import structlog
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.errors import GroupCoordinatorNotAvailableError, InconsistentGroupProtocolError, KafkaError
from aiokafka.protocol.admin import DescribeGroupsRequest
from aiokafka.protocol.group import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from msgspec.structs import replace

from streams.kafka.connection import KafkaConnection
from streams.membership.assignor import Assignor
from streams.membership.client import BrokerClient
from streams.membership.neighbours import Neighbours, Peer
from streams.ownership import Assignment
from topics.catalog import COMMANDS
from topics.errors import ServiceError, Unavailable

log = structlog.get_logger(__name__)

HEARTBEAT_SECONDS: Final = 1.0
WATCH_SECONDS: Final = 0.5
#: A node reads its partitions for this long after its last heartbeat: the group may have gone on without it.
READ_SECONDS: Final = 5.0
FOREVER_MS: Final = 2**31 - 1
#: The broker counts as away after this time without an answered heartbeat, if this node could send any.
AWAY_SECONDS: Final = 4.0
#: Seconds that a member which died may stay in the group after its session.
NAME_SECONDS: Final = 5.0
#: Seconds in which a process that takes a node's name has joined.
REBALANCE_SECONDS: Final = 3.0
#: Seconds between two looks for brokers, and for an answer.
SEEK_SECONDS: Final = 5.0
#: A node without an assignment fails after this time if brokers answer, so that its supervisor restarts it.
STUCK_SECONDS: Final = 90.0
#: Kafka's codes for no error and for a rebalance in progress: the coordinator has counted the heartbeat.
COUNTED: Final = (0, 27)
#: Kafka's code for a fault of the broker, as while its log has no leader yet.
BROKER_FAILED: Final = -1
#: Kafka's code for a member that is not in the group.
UNKNOWN_MEMBER: Final = 25


def clock() -> float:
    """Return monotonic seconds that also count while the process or the machine is suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class NodeName(Protocol):
    """The name of this node, and whether its data directory is where the name was used last."""

    name: str
    is_copy: bool
    file: Path

    def keep(self) -> None:
        """Note that this directory has the name."""

    def give_up(self) -> None:
        """Note that another process has the name: the next start is a copy."""


class Coordinator(GroupCoordinator):  # type: ignore[misc]
    """A member of a consumer group without a consumer: it fetches and commits nothing. Loop only."""

    def __init__(self, membership: GroupMembership, *args: Any, **kwargs: Any) -> None:
        self._membership = membership
        super().__init__(*args, **kwargs)

    async def _send_req(self, request: Any) -> Any:
        if isinstance(request, JoinGroupRequest) and self._membership.is_doubtful:
            await self._membership.check_name()
        if not isinstance(request, (JoinGroupRequest, SyncGroupRequest)):
            return await self._counted(request, super()._send_req)
        beating = asyncio.create_task(self._beat(), name="heartbeats of a join")
        try:
            response = await self._counted(request, super()._send_req)
        finally:
            beating.cancel()
        if response.error_code == BROKER_FAILED:
            # aiokafka would give up for ever.
            self.coordinator_dead()
            raise GroupCoordinatorNotAvailableError
        return response

    async def _counted(self, request: Any, send: Callable[[Any], Awaitable[Any]]) -> Any:
        began = self._membership.clock()
        response = await send(request)
        if isinstance(request, (HeartbeatRequest, SyncGroupRequest)) and response.error_code in COUNTED:
            self._membership.heard = max(self._membership.heard, began)
        if isinstance(request, (HeartbeatRequest, JoinGroupRequest)) and response.error_code == UNKNOWN_MEMBER:
            self._membership.note_removal()
        return response

    async def _beat(self) -> None:
        """Send heartbeats while a request waits for other members: aiokafka sends none, but the broker counts them.

        The broker answers the requests of one connection in turn, so they go through the one for metadata.
        """
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            if self.generation > 0 and (node := self.coordinator_id) is not None:
                request = HeartbeatRequest(self.group_id, self.generation, self.member_id)
                with suppress(KafkaError):
                    await self._counted(request, partial(self._client.send, node))

    async def _on_join_complete(self, *args: Any) -> None:
        await super()._on_join_complete(*args)
        self._membership.take_assignment(self.generation)

    def reset_generation(self) -> None:
        super().reset_generation()
        # Its session ended, or another process joined with its name: the broker's answers are the same.
        self._membership.is_doubtful = True
        self._membership.lose("the group of nodes has gone on without this one")

    async def _push_error_to_user(self, error: BaseException) -> None:
        await self._membership.on_error(error)


class GroupMembership:
    """Implements `streams.node.backend.Membership` with Kafka's consumer groups.

    Loop only. Nodes are static members: a node that comes back within the session timeout gets its partitions back at
    once. A node owns its partitions until `session_seconds` after its last heartbeat, whether or not Kafka notices the
    expiry, and reads them for `READ_SECONDS`. The assignment stays valid during a rebalance, because Kafka assigns
    nothing before all members have rejoined or timed out.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        name: NodeName,
        partitions: int,
        url: str,
        session_seconds: float,
        standbys: int,
        secret: bytes,
        clock: Callable[[], float] = clock,
        run: str = "",
    ) -> None:
        """Prepare to join; the deployment's `secret` signs the messages between its nodes.

        `run` is the id by which this process answers at its `url`.
        """
        #: Whether another process may hold this node's name.
        self.is_doubtful = name.is_copy
        #: When this node sent the last request that the coordinator counts as a heartbeat.
        self.heard = float(-FOREVER_MS)
        self.clock = clock
        self._connection = connection
        self._name = name
        self._session = session_seconds
        self._topic = connection.topic(COMMANDS)
        self._assignor = Assignor(self._topic, partitions, url, standbys, secret, run)
        self.neighbours = Neighbours(self._assignor.holder.run, self._assignor.seal, self._remove)
        #: How often this process was removed from the group though it lived, and whether it was just now.
        self.removals = 0
        self._is_removed = False
        self._assigned: Callable[[Assignment], None] = lambda assignment: None
        self._lost: Callable[[str], None] = lambda reason: None
        self._failed: Callable[[BaseException], None] = lambda error: None
        self._client: Any = None
        self._coordinator: Any = None
        self._watching: asyncio.Task[None] | None = None
        self._holds = False
        #: The time since when this node waits for an assignment though brokers answer, and of the last look for them.
        self._waits_since = self._sought = self.clock()
        #: The time since when the broker is away.
        self._away: float | None = None

    async def start(
        self,
        assigned: Callable[[Assignment], None],
        lost: Callable[[str], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._assigned, self._lost, self._failed = assigned, lost, failed
        await self._join()
        self._watching = asyncio.create_task(self._watch(), name="membership")

    async def _join(self) -> None:
        subscription = SubscriptionState()
        subscription.subscribe({self._topic}, listener=None)
        self._client = BrokerClient(
            **self._connection.aiokafka(), client_id=self._name.name, request_timeout_ms=int(2000 * self._session)
        )
        try:
            await self._client.bootstrap()
            self._client.set_topics([self._topic])
        except KafkaError as error:
            raise ServiceError(f"Kafka at {self._connection.addresses}: {error!r}") from error
        session_ms = int(1000 * self._session)
        self._coordinator = Coordinator(
            self,
            self._client,
            subscription,
            group_id=self._connection.prefix,
            group_instance_id=self._name.name,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=session_ms,
            heartbeat_interval_ms=int(1000 * HEARTBEAT_SECONDS),
            enable_auto_commit=False,
            assignors=(self._assignor,),
            max_poll_interval_ms=FOREVER_MS,
        )
        self._assignor.place = lambda: (self._coordinator.member_id, self._coordinator.generation)

    def valid(self) -> bool:
        return self.clock() - self.heard < self._session

    def may_read(self) -> bool:
        return self.clock() - self.heard < READ_SECONDS

    def waiting(self) -> str | None:
        return self._assignor.excluded if self._holds else "the group of nodes to assign partitions"

    def take_assignment(self, generation: int) -> None:
        self._holds = True
        self._name.keep()
        if self._assignor.excluded is not None:
            log.error("group.same_address", reason=self._assignor.excluded)
        self._assigned(replace(self._assignor.assignment, generation=generation))
        self.neighbours.follow(self._assignor.peers)
        if (fault := self._assignor.fault) is not None:
            log.info("node.joins_again", reason=fault)
            self.rejoin()

    def lose(self, reason: str) -> None:
        if self._holds:
            self._holds = False
            self._waits_since = self.clock()
            self._assignor.forget()
            self._lost(reason)

    # --- the name ---------------------------------------------------------------------------------------------------

    async def check_name(self) -> None:
        """Return once no other process holds this node's name; fail for good if one still does after a session.

        A member that died stays in the group until its session ends. A node that was in the group itself need not wait:
        whoever has its name now joined after it.
        """
        began = self.clock()
        while (metadata := await self._metadata_of_name()) is not None:
            # They are missing during a rebalance: for a moment if another process takes the name, for longer if the
            # group waits for this one.
            other, waited = self._assignor.read(metadata), self.clock() - began
            if (metadata or waited > REBALANCE_SECONDS) and (other is None or other.holder == self._assignor.holder):
                break
            if other is not None and (not self._name.is_copy or waited > self._session + NAME_SECONDS):
                self._name.give_up()
                await self.on_error(
                    ServiceError(
                        f"{other.holder} at {other.url} has the name of this node, {self._assignor.holder}: the data "
                        f"directory was copied. Stop one of the two, or remove {self._name.file} and use the same "
                        "EARSHOT_DATABASE_URL, to make this a node of its own"
                    )
                )
            await asyncio.sleep(HEARTBEAT_SECONDS)
        self.is_doubtful = False
        if self._is_removed:
            self._is_removed = False
            self.removals += 1
            log.error("group.removed", reason="somebody took this process for dead: see docs/troubleshooting.md")

    async def _metadata_of_name(self) -> bytes | None:
        """Return what the member with this node's name said when it joined; None if there is none."""
        response = await self._coordinator._send_req(DescribeGroupsRequest([self._connection.prefix]))
        # The broker makes the ids of static members of their names.
        mine = f"{self._name.name}-"
        return next((one[3] for group in response.groups for one in group[5] if one[0].startswith(mine)), None)

    # --- deaths -----------------------------------------------------------------------------------------------------

    def note_removal(self) -> None:
        """Note that the broker does not know this member: nothing is wrong if its session or its service ended."""
        self._is_removed = self.valid() and not self.neighbours.stopped

    async def _remove(self, peer: Peer, reason: str) -> bool:
        """Have the broker remove a node whose process has died; return whether it has answered.

        By its member id: a process that has taken the node's name since has another one.
        """
        node, request = self._coordinator.coordinator_id, LeaveGroupRequest(self._connection.prefix, peer.id)
        try:
            # The connection for joins may wait for that node.
            response = None if node is None else await self._client.send(node, request)
        except KafkaError:
            response = None
        if response is None or response.error_code not in (0, UNKNOWN_MEMBER):
            return False
        if response.error_code == 0:  # Otherwise it was gone already.
            log.warning("group.dead", url=peer.url, process=peer.pid, reason=reason)
        self.rejoin()
        return True

    def give_up(self, reason: str) -> None:
        if self._holds:
            self.lose(reason)
            self.rejoin()

    def rejoin(self) -> None:
        self._coordinator.request_rejoin()

    def take(self, ready: frozenset[int]) -> None:
        self._assignor.ready = ready
        self.rejoin()

    def leave(self) -> None:
        self._assignor.leaving = True
        self.rejoin()

    async def on_error(self, error: BaseException) -> None:
        """Fail for good, unless the error can be retried."""
        if isinstance(error, KafkaError) and error.retriable:
            log.warning("group.error", error=repr(error))
            await asyncio.sleep(HEARTBEAT_SECONDS)
            return
        if isinstance(error, InconsistentGroupProtocolError):
            error = ServiceError(
                "nodes of a version with other formats, or with another EARSHOT_DATABASE_URL, run in this group: "
                "stop all of them first, or give each deployment its own EARSHOT_KAFKA_PREFIX"
            )
        self._failed(error)
        await asyncio.Event().wait()  # Until the node stops.

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            if self._coordinator._coordination_task.done():
                self._failed(self._coordinator._coordination_task.exception() or ServiceError("the group was left"))
                return
            self._note_absence()
            await self._seek_brokers()
            if not self.valid():
                self.give_up(f"no heartbeat was answered for {self.clock() - self.heard:.0f} s")

    async def _seek_brokers(self) -> None:
        """Ask the bootstrap servers again while this node has no assignment, as they may know other brokers by now.

        The node fails if they answer, and the group assigns it nothing for a while.
        """
        now = self.clock()
        if self._holds or now - self._sought < SEEK_SECONDS:
            return
        self._sought = now
        try:
            async with asyncio.timeout(SEEK_SECONDS):
                # aiokafka asks them once, and then only the brokers that it knew then.
                await self._client.bootstrap()
                await self._client.force_metadata_update()
        except (KafkaError, TimeoutError):
            self._waits_since = now
        if now - self._waits_since > STUCK_SECONDS:
            self._failed(Unavailable(f"the group assigned nothing in {STUCK_SECONDS:.0f} s, though brokers answer"))

    @property
    def is_away(self) -> bool:
        return self._away is not None

    def _note_absence(self) -> None:
        """Log once when the broker goes away, and once when it is back."""
        silent = self.clock() - self.heard
        if self._away is not None and silent < AWAY_SECONDS:
            log.warning("broker.back", seconds=round(self.clock() - self._away))
            self._away = None
        elif self._away is None and self._holds and silent > AWAY_SECONDS:
            log.warning("broker.away", addresses=self._connection.addresses, seconds=round(silent))
            self._away = self.heard

    async def stop(self) -> None:
        """Leave the group, so that the others need not wait for this node's session to end."""
        self.neighbours.stop()
        if self._watching is not None:
            self._watching.cancel()
        if self._coordinator is not None:
            # aiokafka sends no leave request for static members, although Kafka accepts one.
            self._coordinator._group_instance_id = None
        for part in (self._coordinator, self._client):
            if part is not None:
                try:
                    async with asyncio.timeout(2.0):
                        await part.close()
                except (KafkaError, TimeoutError) as error:
                    log.warning("group.not_left", error=repr(error))
