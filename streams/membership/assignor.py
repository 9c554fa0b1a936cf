"""Decides which node owns each partition, and which nodes stand by for it."""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
import structlog
from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

from streams.membership.neighbours import Peer
from streams.membership.seal import MEMBER, PLAN, Seal
from streams.ownership import Assignment
from topics.catalog import COMMANDS
from topics.formats import fingerprint

log = structlog.get_logger(__name__)

VERSION: Final = 0


class Holder(msgspec.Struct, frozen=True):
    """The process that holds a node's name."""

    host: str
    pid: int
    #: When it started, Unix time in ms, and a random id: two processes never have the same.
    since: int
    run: str

    @classmethod
    def this(cls, run: str = "") -> Holder:
        return cls(socket.gethostname(), os.getpid(), int(time.time() * 1000), run or secrets.token_hex(8))

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


class Member(msgspec.Struct, frozen=True):
    """A node's message to the group when it joins."""

    url: str
    standbys: int
    #: Its partitions, those that it has had for longest first.
    owned: tuple[int, ...]
    standing_by: tuple[int, ...]
    #: The number of joins: Kafka rebalances when a member's metadata change.
    joins: int
    holder: Holder
    #: It is about to stop, and wants no partitions.
    leaving: bool = False
    #: Partitions whose tables are up to date here, of those that the plan before promised.
    ready: tuple[int, ...] = ()


class Plan(msgspec.Struct, frozen=True, array_like=True):
    """The leader's message to a node, besides its partitions.

    All plans of a generation are one record of the broker, 1 MB at most, so names of fields are left out.
    """

    #: The generation of the group that it was made for: an old plan does not count again.
    generation: int
    #: The member id of the node that it is for.
    member: str
    #: The nodes that may have partitions, and for each partition the places of its owner and its stand-bys among them.
    peers: tuple[Peer, ...]
    owners: dict[int, int]
    standbys: dict[int, list[int]]
    #: Why this node gets no partitions, None if it does.
    refused: str | None = None
    #: Those of the standbys that the node gets once it says that they are ready.
    coming: tuple[int, ...] = ()


_encode: Final = msgspec.msgpack.Encoder().encode
_member: Final = msgspec.msgpack.Decoder(Member)
_plan: Final = msgspec.msgpack.Decoder(Plan)


class Assignor(AbstractPartitionAssignor):  # type: ignore[misc]
    """Adapts Faust's assignor, for partitions of the same number, to aiokafka's protocol.

    Loop only. Partitions stay where they are as long as the shares are equal; those of a lost node go to its
    standbys. Messages are signed, because nodes forward keys to the addresses in them: a member that is not a node of
    the deployment gets no partitions, and its decisions as the leader are rejected.
    """

    name = "earshot"  # The class of the library wants one.

    def __init__(self, topic: str, partitions: int, url: str, standbys: int, secret: bytes, run: str = "") -> None:
        """Assign the first `partitions` of a topic, whatever was added later; `run` is the id of this process."""
        #: Kafka rejects members with another protocol: nodes of another deployment, or of a version with other formats.
        self.name = f"earshot-{hmac.digest(secret, fingerprint(Member, Plan), 'sha256').hex()[:8]}"
        self.assignment = Assignment(frozenset())
        self.holder = Holder.this(run)
        #: The nodes that may have partitions, by the last plan.
        self.peers: tuple[Peer, ...] = ()
        #: The member id of this node, and the generation of the group, as the broker has told them.
        self.place: Callable[[], tuple[str, int]] = lambda: ("", 0)
        #: Why this node gets no partitions, None if it may have some.
        self.excluded: str | None = None
        #: Whether this node is about to stop.
        self.leaving = False
        #: Partitions of `assignment.coming` that this node can take now.
        self.ready: frozenset[int] = frozenset()
        self.seal = Seal(secret)
        #: Why this node must join again to get a plan that counts, None if it need not.
        self.fault: str | None = None
        #: The commands' topic on the brokers, which represents all topics.
        self._topic = topic
        self._partitions = partitions
        self._url = url
        self._standbys = standbys
        self._joins = 0
        #: The owned partitions, in the order in which they came.
        self._held: list[int] = []

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        self._joins += 1
        member = Member(
            self._url,
            self._standbys,
            tuple(self._held),
            tuple(sorted(self.assignment.standbys)),
            self._joins,
            self.holder,
            self.leaving,
            tuple(sorted(self.ready)),
        )
        return ConsumerProtocolMemberMetadata(VERSION, list(topics), self.seal.put(MEMBER, _encode(member)))

    def assign(
        self, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        """Assign partitions to all nodes; called on the group's leader."""
        nodes = {}
        for id, metadata in members.items():
            if (data := self.seal.take(MEMBER, metadata.user_data or b"")) is None:
                log.warning("group.stranger", member=id, reason="its message is not signed by this deployment")
            else:
                nodes[id] = _member.decode(data)
        excluded = same_address(nodes)
        for reason in excluded.values():
            log.error("group.same_address", reason=reason)
        staying = {id: node for id, node in nodes.items() if id not in excluded and not node.leaving}
        shares = dict.fromkeys(nodes, Assignment(frozenset())) | share_gradually(staying, self._partitions)
        peers = tuple(Peer(id, node.url, node.holder.run, node.holder.pid) for id, node in staying.items())
        places = {id: place for place, id in enumerate(staying)}
        owners = {number: places[id] for id, assignment in shares.items() for number in assignment.owned}
        standbys: dict[int, list[int]] = {}
        for id, assignment in shares.items():
            for number in assignment.standbys:
                standbys.setdefault(number, []).append(places[id])
        _, generation = self.place()
        nothing = {id: ConsumerProtocolMemberAssignment(VERSION, [], b"") for id in members.keys() - nodes.keys()}
        return nothing | {
            id: ConsumerProtocolMemberAssignment(
                VERSION,
                [(self._topic, sorted(assignment.owned))],
                self.seal.put(
                    PLAN,
                    _encode(
                        Plan(
                            generation, id, peers, owners, standbys, excluded.get(id), tuple(sorted(assignment.coming))
                        )
                    ),
                ),
            )
            for id, assignment in shares.items()
        }

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        data = self.seal.take(PLAN, assignment.user_data) if assignment.user_data else None
        plan = None if data is None else _plan.decode(data)
        id, generation = self.place()
        self.fault, self.ready = None, frozenset()
        if plan is None and assignment.user_data:
            self.fault = "the leader of the group is not of this deployment"
        elif plan is not None and plan.generation != generation:
            self.fault, plan = "the plan is of another generation of the group", None
        if self.fault is not None:
            log.error("group.stranger", reason=self.fault)
        if plan is None:
            self.assignment, self._held, self.excluded = Assignment(frozenset()), [], None
            return
        owners = {number: plan.peers[place] for number, place in plan.owners.items()}
        owned = frozenset(number for number, peer in owners.items() if peer.id == plan.member)
        # A node that comes back first gets the plan for the process that had its name.
        if plan.member != id:
            self.fault = "the plan is for an earlier process of this node"
        self.excluded, self.peers = plan.refused, plan.peers
        self._held = [number for number in self._held if number in owned]
        self._held += sorted(owned - set(self._held))
        urls = {number: peer.url for number, peer in owners.items()}
        others = frozenset(peer.url for peer in plan.peers) - {self._url}
        standbys = {number: [plan.peers[place] for place in places] for number, places in plan.standbys.items()}
        self.assignment = Assignment(
            owned,
            frozenset(number for number, some in standbys.items() if any(one.id == plan.member for one in some))
            - owned,
            urls,
            coming=frozenset(plan.coming),
            others=others,
            standby_urls={
                number: [one.url for one in some if one.id != plan.member] for number, some in standbys.items()
            },
        )

    def read(self, metadata: bytes) -> Member | None:
        """Return what a member of the group said of itself, None if it is not of this deployment."""
        said = ConsumerProtocolMemberMetadata.decode(metadata).user_data if metadata else b""
        data = self.seal.take(MEMBER, said or b"")
        return None if data is None else _member.decode(data)

    def forget(self) -> None:
        """Drop all partitions, because other nodes may own them; count them as standbys."""
        self.assignment = Assignment(frozenset(), self.assignment.owned | self.assignment.standbys)
        self._held = []


def same_address(nodes: Mapping[str, Member]) -> dict[str, str]:
    """Return the members whose address another one has, each with the reason for operators.

    On the same host only the newer of two can listen there. On different hosts, the one with partitions keeps them.
    """
    kept: dict[str, str] = {}
    excluded: dict[str, str] = {}
    for id, node in sorted(nodes.items(), key=lambda item: (not item[1].owned, item[1].holder.since, item[0])):
        other = kept.setdefault(node.url, id)
        if other == id:
            continue
        if node.holder.host == nodes[other].holder.host and node.holder.since > nodes[other].holder.since:
            kept[node.url], id, other = id, other, id
        excluded[id] = (
            f"{nodes[id].holder} has the address {node.url}, which {nodes[other].holder} has too: "
            "give each node its own EARSHOT_ADVERTISE"
        )
    return excluded


def share(nodes: Mapping[str, Member], partitions: int) -> dict[str, Assignment]:
    # Imported here, because a node that is not the leader need not load it.
    from faust.assignor.client_assignment import CopartitionedAssignment
    from faust.assignor.copartitioned_assignor import CopartitionedAssignor

    if not nodes:
        return {}
    standbys = max(node.standbys for node in nodes.values())
    if _is_settled(nodes, partitions, min(standbys, len(nodes) - 1)):
        return {
            id: Assignment(frozenset(one.owned), frozenset(one.standing_by) - {*one.owned}) for id, one in nodes.items()
        }
    taken: set[int] = set()
    before: dict[str, Any] = {}
    most = -(-partitions // len(nodes))
    for id, node in sorted(nodes.items()):
        # After a pause, two nodes may claim the same partition. What a node gives up is what came last, so that a
        # neighbour which comes back takes its own.
        owned = set([number for number in node.owned if number < partitions and number not in taken][:most])
        taken |= owned
        standing_by = {number for number in node.standing_by if number < partitions} - owned
        before[id] = CopartitionedAssignment(owned, standing_by, {COMMANDS})
    after = CopartitionedAssignor({COMMANDS}, before, partitions, standbys).get_assignment()
    _even_out(list(after.values()))
    _spread(nodes, after)
    return {id: Assignment(frozenset(one.actives), frozenset(one.standbys)) for id, one in after.items()}


def share_gradually(nodes: Mapping[str, Member], partitions: int) -> dict[str, Assignment]:
    """Share the partitions, but leave each with its owner until the node that gets it has its table up to date.

    Until then that node stands by for it.
    """
    taken = {number: id for id, node in nodes.items() for number in node.ready}
    nodes = {
        id: msgspec.structs.replace(node, owned=(*(n for n in node.owned if taken.get(n, id) == id), *node.ready))
        for id, node in nodes.items()
    }
    shares = share(nodes, partitions)
    owner = {number: id for id, node in nodes.items() for number in node.owned}
    moves = {number for id, one in shares.items() for number in one.owned - {*nodes[id].owned} if number in owner}
    coming = {id: one.owned & moves for id, one in shares.items()}
    stay = {id: frozenset(number for number in moves if owner[number] == id) for id in shares}
    return {
        id: Assignment((one.owned - coming[id]) | stay[id], (one.standbys | coming[id]) - stay[id], coming=coming[id])
        for id, one in shares.items()
    }


def _is_settled(nodes: Mapping[str, Member], partitions: int, standbys: int) -> bool:
    """Return whether the shares can stay as they are; Faust would move some of their partitions."""
    owned = Counter(number for node in nodes.values() for number in node.owned)
    standing_by = Counter(number for node in nodes.values() for number in set(node.standing_by) - set(node.owned))
    sizes = [len(node.owned) for node in nodes.values()]
    return (
        owned == Counter(range(partitions))
        and standing_by == Counter({number: standbys for number in range(partitions) if standbys})
        and max(sizes) - min(sizes) < 2
        and not any(_beside_owner(nodes, {id: set(node.standing_by) - set(node.owned) for id, node in nodes.items()}))
    )


def _beside_owner(nodes: Mapping[str, Member], standbys: Mapping[str, set[int]]) -> Iterator[tuple[int, str, str]]:
    """Yield each stand-by on the machine of its owner, its node, and one of another machine that can take its place."""
    owner = {number: id for id, node in nodes.items() for number in node.owned}
    for here, numbers in sorted(standbys.items()):
        for number in sorted(numbers):
            machine = nodes[owner[number]].holder.host
            others = [id for id, node in nodes.items() if node.holder.host != machine and number not in standbys[id]]
            if nodes[here].holder.host == machine and others:
                yield number, here, min(others, key=lambda id: (len(standbys[id]), id))


def _spread(nodes: Mapping[str, Member], shares: Mapping[str, Any]) -> None:
    """Move stand-bys from the machines of their owners, where one failure ends both."""
    after = {id: msgspec.structs.replace(nodes[id], owned=tuple(one.actives)) for id, one in shares.items()}
    standbys = {id: one.standbys for id, one in shares.items()}
    while (move := next(_beside_owner(after, standbys), None)) is not None:
        number, here, there = move
        standbys[here].remove(number)
        standbys[there].add(number)


def _even_out(shares: list[Any]) -> None:
    """Move partitions until the shares differ by at most one; Faust only limits the largest share."""
    while True:
        least, most = (pick(shares, key=lambda one: len(one.actives)) for pick in (min, max))
        if len(most.actives) - len(least.actives) < 2:
            return
        number = min(most.actives, key=lambda number: (number not in least.standbys, number))
        most.actives.remove(number)
        least.actives.add(number)
        if number in least.standbys:
            least.standbys.remove(number)
            most.standbys.add(number)
