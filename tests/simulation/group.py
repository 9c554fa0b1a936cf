"""The broker's side of the consumer group: members, heartbeats, session timeouts, joins and generations."""

import asyncio
from collections.abc import Callable
from enum import Enum
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

from aiokafka.errors import RequestTimedOutError
from aiokafka.protocol.admin import DescribeGroupsRequest
from aiokafka.protocol.group import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest

from tests.simulation.log import Cluster, Link
from tests.simulation.loop import SimulatedLoop

OK: Final = 0
ILLEGAL_GENERATION: Final = 22
UNKNOWN_MEMBER: Final = 25
REBALANCING: Final = 27

Reply = Callable[[Any], None]


class State(Enum):
    EMPTY = 0
    PREPARING = 1
    SYNCING = 2
    STABLE = 3


class Member:
    """A node, as the broker sees it."""

    def __init__(self, id: str, instance: str | None) -> None:
        self.id = id
        self.instance = instance
        self.metadata = b""
        self.assignment = b""
        self.joining: Reply | None = None
        self.syncing: Reply | None = None
        self.expiry: asyncio.TimerHandle | None = None


class Group:
    """A consumer group with static members, like that of Kafka's coordinator."""

    def __init__(self, loop: SimulatedLoop, cluster: Cluster) -> None:
        self._loop = loop
        self._cluster = cluster
        self.state = State.EMPTY
        self.generation = 0
        self.rebalances = 0
        self._members: dict[str, Member] = {}
        self._leader = ""
        self._protocol = ""
        self._session = 0.0
        self._ids = 0
        self._deadline: asyncio.TimerHandle | None = None

    def handle(self, request: Any, reply: Reply) -> None:
        if isinstance(request, JoinGroupRequest):
            self._join(request, reply)
        elif isinstance(request, SyncGroupRequest):
            self._sync(request, reply)
        elif isinstance(request, HeartbeatRequest):
            reply(SimpleNamespace(error_code=self._beat(request)))
        elif isinstance(request, DescribeGroupsRequest):
            reply(SimpleNamespace(groups=[]))  # No two processes have the same name here.
        else:
            assert isinstance(request, LeaveGroupRequest)
            if (member := self._members.get(request._member_id)) is not None:
                self._remove(member)
            reply(SimpleNamespace(error_code=UNKNOWN_MEMBER if member is None else OK))

    # --- members ----------------------------------------------------------------------------------------------------

    def _join(self, request: JoinGroupRequest, reply: Reply) -> None:
        self._session = request._session_timeout / 1000
        member = self._members.get(request._member_id)
        if member is None:
            if request._member_id:
                reply(SimpleNamespace(error_code=UNKNOWN_MEMBER))
                return
            self._ids += 1
            member = Member(f"{request._group_instance_id}-{self._ids}", request._group_instance_id)
            for old in list(self._members.values()):
                if member.instance is not None and old.instance == member.instance:
                    # A returning member: its former id is fenced.
                    member.assignment = old.assignment
                    self._forget(old)
                    if self._leader == old.id:
                        self._leader = member.id
            self._members[member.id] = member
        [(self._protocol, metadata)] = request._group_protocols
        changed, member.metadata = metadata != member.metadata, metadata
        member.joining = reply
        self._keep(member)
        if self.state is State.STABLE and not changed and member.id != self._leader:
            self._answer_join(member)
            return
        if self.state is not State.PREPARING:
            self._prepare()
        self._complete_if_all_joined()

    def _beat(self, request: HeartbeatRequest) -> int:
        member = self._members.get(request._member_id)
        if member is None:
            return UNKNOWN_MEMBER
        if request._generation_id != self.generation:
            return ILLEGAL_GENERATION
        self._keep(member)
        return REBALANCING if self.state is State.PREPARING else OK

    def _keep(self, member: Member) -> None:
        if member.expiry is not None:
            member.expiry.cancel()
        member.expiry = self._loop.call_later(self._session, self._expire, member, context=self._cluster.context)

    def _expire(self, member: Member) -> None:
        if self._members.get(member.id) is not member:
            return
        if self._cluster.away or member.joining is not None:  # An unavailable coordinator runs no timeouts.
            self._keep(member)
        else:
            self._remove(member)

    def remove(self, instance: str) -> None:
        """Remove a member as a LeaveGroup for it does."""
        for member in list(self._members.values()):
            if member.instance == instance:
                self._remove(member)

    def _remove(self, member: Member) -> None:
        self._forget(member)
        if self._leader == member.id:
            self._leader = next(iter(self._members), "")
        if self.state is State.PREPARING:
            self._complete_if_all_joined()
        elif self._members:
            self._prepare()
        else:
            self.state = State.EMPTY

    def _forget(self, member: Member) -> None:
        del self._members[member.id]
        if member.expiry is not None:
            member.expiry.cancel()
        for waiting in (member.joining, member.syncing):
            if waiting is not None:
                waiting(SimpleNamespace(error_code=UNKNOWN_MEMBER))

    # --- rebalances -------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        self.state = State.PREPARING
        self.rebalances += 1
        for member in self._members.values():
            if member.syncing is not None:
                member.syncing(SimpleNamespace(error_code=REBALANCING))
                member.syncing = None
        self._deadline = self._loop.call_later(self._session, self._complete, context=self._cluster.context)

    def _complete_if_all_joined(self) -> None:
        if self.state is State.PREPARING and all(one.joining is not None for one in self._members.values()):
            self._complete()

    def _complete(self) -> None:
        """Begin a generation; static members who have not rejoined stay until their sessions end."""
        if self.state is not State.PREPARING:
            return
        if self._deadline is not None:
            self._deadline.cancel()
        for member in list(self._members.values()):
            if member.joining is None and member.instance is None:
                self._forget(member)
        joined = [member.id for member in self._members.values() if member.joining is not None]
        if not joined:
            self.state = State.EMPTY if not self._members else State.PREPARING
            if self._members:
                self._deadline = self._loop.call_later(self._session, self._complete, context=self._cluster.context)
            return
        if self._leader not in joined:
            self._leader = joined[0]
        self.generation += 1
        self.state = State.SYNCING
        for member in list(self._members.values()):
            member.assignment = b""
            if member.joining is not None:
                self._answer_join(member)
                self._keep(member)

    def _answer_join(self, member: Member) -> None:
        members = [(one.id, one.instance, one.metadata) for one in self._members.values()]
        reply, member.joining = member.joining, None
        assert reply is not None
        reply(
            SimpleNamespace(
                API_VERSION=5,
                error_code=OK,
                generation_id=self.generation,
                group_protocol=self._protocol,
                leader_id=self._leader,
                member_id=member.id,
                members=members if member.id == self._leader else [],
            )
        )

    def _sync(self, request: SyncGroupRequest, reply: Reply) -> None:
        member = self._members.get(request._member_id)
        if member is None:
            reply(SimpleNamespace(error_code=UNKNOWN_MEMBER))
        elif request._generation_id != self.generation:
            reply(SimpleNamespace(error_code=ILLEGAL_GENERATION))
        elif self.state is State.PREPARING:
            reply(SimpleNamespace(error_code=REBALANCING))
        else:
            self._keep(member)
            member.syncing = reply
            if member.id == self._leader and self.state is State.SYNCING:
                for id, assignment in request._group_assignment:
                    if id in self._members:
                        self._members[id].assignment = assignment
                self.state = State.STABLE
            if self.state is State.STABLE:
                for one in self._members.values():
                    if one.syncing is not None:
                        one.syncing(SimpleNamespace(error_code=OK, member_assignment=one.assignment))
                        one.syncing = None


class Metadata:
    """aiokafka's knowledge of the cluster."""

    def __init__(self, partitions: int) -> None:
        self._partitions = set(range(partitions))

    def add_listener(self, listener: Any) -> None: ...

    def partitions_for_topic(self, topic: str) -> set[int]:
        return self._partitions


class Client:
    """An `AIOKafkaClient` that reaches the group's coordinator over a link."""

    def __init__(self, link: Link, group: Group, context: Any, partitions: int, timeout: float) -> None:
        self.cluster = Metadata(partitions)
        self._link = link
        self._group = group
        self._context = context
        self._timeout = timeout
        #: Delays of the answers to the next heartbeats, taken from the end.
        self.late: list[float] = []

    async def bootstrap(self) -> None: ...

    def set_topics(self, topics: Any) -> None: ...

    async def _maybe_wait_metadata(self) -> None: ...

    async def force_metadata_update(self) -> None: ...

    async def coordinator_lookup(self, kind: Any, group: str) -> int:
        return 0

    async def ready(self, node: int, group: Any = None) -> bool:
        return True

    async def send(self, node: int, request: Any, group: Any = None) -> Any:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        late = self.late.pop() if self.late and isinstance(request, HeartbeatRequest) else 0.0

        def give(response: Any) -> None:
            if not answer.done():
                answer.set_result(response)

        def give_up() -> None:
            if not answer.done():
                answer.set_exception(RequestTimedOutError())

        def reply(response: Any) -> None:
            self._link.send(partial(give, response), self._context, late)

        self._link.send(lambda: self._group.handle(request, reply), delay=0.0)
        timer = loop.call_later(self._timeout, give_up)
        try:
            return await answer
        finally:
            timer.cancel()

    async def close(self) -> None: ...
