"""Partition assignment, and the metadata that nodes exchange."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from math import ceil
from typing import Any

import msgspec
import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from streams.membership.assignor import Assignor, Holder, Member, same_address, share, share_gradually
from streams.membership.neighbours import Peer
from streams.membership.seal import MEMBER, PLAN, Seal
from streams.ownership import Assignment
from topics.catalog import COMMANDS

SECRET = b"of the deployment"
HERE = Holder("here", 7, 1000, "a")


def member(owned: Iterable[int] = (), standing_by: Iterable[int] = (), standbys: int = 1) -> Member:
    return Member("", standbys, tuple(owned), tuple(standing_by), 1, HERE)


def again(shares: Mapping[str, Assignment], *new: str, standbys: int = 1) -> dict[str, Member]:
    """Return the members of the next round, including new nodes."""
    known = {id: member(one.owned, one.standbys, standbys) for id, one in shares.items()}
    return {**known, **{id: member(standbys=standbys) for id in new}}


def owner_of(shares: Mapping[str, Assignment]) -> dict[int, str]:
    return {number: id for id, one in shares.items() for number in one.owned}


def assert_fair(shares: Mapping[str, Assignment], partitions: int) -> None:
    """Check that every partition has one owner, and no node has more than its share."""
    assert sorted(number for one in shares.values() for number in one.owned) == list(range(partitions))
    assert max(len(one.owned) for one in shares.values()) <= ceil(partitions / len(shares))
    for one in shares.values():
        assert not one.owned & one.standbys


@pytest.mark.parametrize(("nodes", "partitions"), [("ab", 4), ("ab", 9), ("abcd", 16), ("abcdefgh", 64)])
def test_new_node_takes_its_share_and_the_rest_stays(nodes: str, partitions: int) -> None:
    first = share({id: member() for id in nodes}, partitions)
    second = share(again(first, "z"), partitions)
    assert_fair(second, partitions)
    before, after = owner_of(first), owner_of(second)
    assert {after[number] for number in after if after[number] != before[number]} == {"z"}
    sizes = [len(one.owned) for one in second.values()]
    assert max(sizes) - min(sizes) <= 1, "nobody is idle while others have more than one"


@pytest.mark.parametrize("machines", ["aabb", "aaab", "aabbcc"])
@pytest.mark.parametrize("standbys", [1, 2])
def test_standby_is_on_another_machine_than_its_owner(machines: str, standbys: int) -> None:
    """If there is one: here each node is a lane of the machine that its letter names."""
    nodes = {
        f"{machine}{number}": msgspec.structs.replace(member(standbys=standbys), holder=Holder(machine, 7, 1000, "a"))
        for number, machine in enumerate(machines)
    }
    first = share(nodes, 16)
    assert_fair(first, 16)
    owner = owner_of(first)
    counts = Counter(number for one in first.values() for number in one.standbys)
    assert counts == Counter(dict.fromkeys(range(16), standbys))
    for number in range(16):
        places = {id[0] for id, one in first.items() if number in one.standbys}
        elsewhere = [id for id in nodes if id[0] != owner[number][0]]
        assert len(elsewhere) < standbys or owner[number][0] not in places
    again_settled = {
        id: msgspec.structs.replace(node, owned=tuple(first[id].owned), standing_by=tuple(first[id].standbys))
        for id, node in nodes.items()
    }
    assert share(again_settled, 16) == first


def test_returning_neighbour_takes_what_its_node_got_last() -> None:
    """The partitions that a node keeps while its neighbour is away stay there."""
    for kept in ((0, 1, 2, 3), (4, 5, 6, 7), (1, 3, 5, 7)):
        moved = sorted(set(range(8)) - set(kept))
        shares = share({"a": member([*kept, *moved]), "b": member()}, 8)
        assert (shares["a"].owned, shares["b"].owned) == (frozenset(kept), frozenset(moved))


def test_standby_takes_over_partition() -> None:
    first = share({id: member() for id in "abc"}, 9)
    assert {number for one in first.values() for number in one.standbys} == set(range(9))
    left = {id: one for id, one in first.items() if id != "b"}
    second = share(again(left), 9)
    assert_fair(second, 9)
    before, after = owner_of(first), owner_of(second)
    for number in first["b"].owned:
        [standby] = [id for id, one in left.items() if number in one.standbys]
        assert after[number] == standby, "what is up to date there"
    assert all(after[number] == before[number] for number in after if before[number] != "b")


def test_conflicting_and_unknown_claims_are_resolved() -> None:
    """One was paused while the others went on, and does not know it yet."""
    shares = share({"a": member([0, 1, 2, 3]), "b": member([2, 3])}, 4)
    assert_fair(shares, 4)
    assert [len(one.owned) for one in shares.values()] == [2, 2]
    assert_fair(share({"a": member([0, 7, 9], [8]), "b": member([1, 99])}, 4), 4)


@settings(max_examples=60)
@given(
    partitions=st.integers(1, 12),
    rounds=st.lists(st.sets(st.sampled_from("abcde"), min_size=1), min_size=1, max_size=4),
    standbys=st.integers(0, 2),
)
def test_every_partition_has_one_owner_after_membership_changes(
    partitions: int, rounds: list[set[str]], standbys: int
) -> None:
    shares: dict[str, Assignment] = {}
    for ids in rounds:
        left = {id: one for id, one in shares.items() if id in ids}
        nodes = again(left, *sorted(ids - left.keys()), standbys=standbys)
        shares = share(dict(sorted(nodes.items())), partitions)
        assert shares.keys() == ids
        assert_fair(shares, partitions)
        for number in range(partitions):
            assert sum(number in one.standbys for one in shares.values()) == min(standbys, len(ids) - 1)
        assert share(again(shares, standbys=standbys), partitions) == shares, "partitions stay with unchanged members"


def settled(nodes: dict[str, Member], partitions: int) -> list[dict[str, Assignment]]:
    """Return the plans until nothing is coming: after each, nodes say that what they stand by for is ready."""
    plans: list[dict[str, Assignment]] = []
    while not plans or any(one.coming for one in plans[-1].values()):
        assert len(plans) < 6, "it does not come to rest"
        plans.append(share_gradually(nodes, partitions))
        nodes = {
            id: msgspec.structs.replace(member(one.owned, one.standbys, nodes[id].standbys), ready=tuple(one.coming))
            for id, one in plans[-1].items()
        }
    return plans


def test_partitions_stay_until_the_new_node_is_ready() -> None:
    shares = share({"a": member(), "b": member()}, 6)
    first, second = settled(again(shares, "z"), 6)
    assert {id: one.owned for id, one in first.items() if id != "z"} == {id: one.owned for id, one in shares.items()}
    assert (first["z"].owned, len(first["z"].coming)) == (frozenset(), 2)
    assert first["z"].coming <= first["z"].standbys
    assert second["z"].owned == first["z"].coming


@settings(max_examples=60)
@given(
    partitions=st.integers(1, 12),
    rounds=st.lists(st.sets(st.sampled_from("abcde"), min_size=1), min_size=1, max_size=4),
    standbys=st.integers(0, 2),
)
def test_plans_come_to_rest(partitions: int, rounds: list[set[str]], standbys: int) -> None:
    shares: dict[str, Assignment] = {}
    for ids in rounds:
        left = {id: one for id, one in shares.items() if id in ids}
        nodes = again(left, *sorted(ids - left.keys()), standbys=standbys)
        owner, ready = owner_of(left), {id: frozenset[int]() for id in ids}
        for shares in settled(dict(sorted(nodes.items())), partitions):
            assert sorted(number for one in shares.values() for number in one.owned) == list(range(partitions))
            for id, one in shares.items():
                assert not one.owned & one.standbys
                assert all(owner.get(number, id) == id or number in ready[id] for number in one.owned)
            owner, ready = owner_of(shares), {id: one.coming for id, one in shares.items()}
        assert_fair(shares, partitions)


# --- members' metadata ----------------------------------------------------------------------------------------------


class Cluster:
    """The cluster metadata that an assignor uses."""

    def partitions_for_topic(self, topic: str) -> set[int]:
        assert topic == COMMANDS
        return {0, 1, 2, 3}


CLUSTER: Any = Cluster()


def node(name: str = "here", standbys: int = 1, secret: bytes = SECRET) -> Assignor:
    return Assignor(COMMANDS, 4, f"http://{name}:1", standbys, secret)


def decide(*assignors: Assignor) -> None:
    """Let the first node decide for all, through serialised metadata."""
    said = {str(at): assignor.metadata([COMMANDS]) for at, assignor in enumerate(assignors)}
    decided = assignors[0].assign(CLUSTER, said)
    for at, assignor in enumerate(assignors):
        assignor.place = lambda at=at: (str(at), 0)  # type: ignore[misc]
        assignor.on_assignment(ConsumerProtocolMemberAssignment.decode(decided[str(at)].encode()))


def test_each_node_learns_its_partitions_and_urls_of_others() -> None:
    here, there = node(), node("there")
    decide(here, there)
    urls = dict.fromkeys(here.assignment.owned, "http://here:1") | dict.fromkeys(
        there.assignment.owned, "http://there:1"
    )
    assert sorted(urls) == [0, 1, 2, 3]
    for one in (here, there):
        assert not one.fault
        assert one.assignment.urls == urls
        assert one.assignment.owned | one.assignment.standbys == set(range(4))
        url = "http://there:1" if one is here else "http://here:1"
        assert one.assignment.standby_urls == {at: [url] * (at in one.assignment.owned) for at in range(4)}
    before = here.assignment
    decide(here, there)
    assert here.assignment == before


@pytest.mark.parametrize("name", ["old", "new"])
def test_restarted_node_must_rejoin(name: str) -> None:
    """The broker gives a static member the plan for its earlier process: nobody could remove it by that member id."""
    old, restarted = node("old", 0), node(name, 0)
    decide(old)
    restarted.place = lambda: ("b", 0)
    restarted.on_assignment(old.assign(CLUSTER, {"a": old.metadata([COMMANDS])})["a"])
    assert restarted.assignment.owned == {0, 1, 2, 3}
    assert restarted.fault
    decide(restarted)
    assert not restarted.fault


def test_plan_names_member_address_and_process_of_each_node() -> None:
    here, there = node(), node("there")
    decide(here, there)
    for one in (here, there):
        assert one.peers == (
            Peer("0", "http://here:1", here.holder.run, os.getpid()),
            Peer("1", "http://there:1", there.holder.run, os.getpid()),
        )


def test_plan_leaves_out_node_that_stops() -> None:
    """It closes its port before it leaves the group: nobody is to take it for dead."""
    here, there = node(), node("there")
    there.leaving = True
    decide(here, there)
    assert [peer.url for peer in there.peers] == ["http://here:1"] == [peer.url for peer in here.peers]


def test_plan_counts_in_its_generation_only() -> None:
    """Whoever reads the group could repeat it later."""
    here = node(standbys=0)
    here.place = lambda: ("a", 7)
    plan = here.assign(CLUSTER, {"a": here.metadata([COMMANDS])})["a"]
    here.on_assignment(plan)
    assert here.assignment.owned == {0, 1, 2, 3}
    here.place = lambda: ("a", 8)
    with capture_logs() as lines:
        here.on_assignment(plan)
    assert (here.assignment, [line["event"] for line in lines]) == (Assignment(frozenset()), ["group.stranger"])
    assert here.fault == "the plan is of another generation of the group"


def test_every_join_has_new_metadata_and_an_empty_assignment_is_valid() -> None:
    """Kafka starts no rebalance for a static member with unchanged metadata."""
    assignor = node()
    assert len({assignor.metadata([COMMANDS]).user_data for _ in range(3)}) == 3
    assignor.on_assignment(ConsumerProtocolMemberAssignment(0, [], b""))
    assert (assignor.assignment, assignor.fault) == (Assignment(frozenset()), None)


def test_node_stands_by_for_lost_partitions() -> None:
    """Its tables are nearly current, which the next leader should know."""
    assignor = node()
    decide(assignor, node("there"))
    owned, standbys = assignor.assignment.owned, assignor.assignment.standbys
    assignor.forget()
    assert assignor.assignment == Assignment(frozenset(), owned | standbys)


# --- foreign members ------------------------------------------------------------------------------------------------


def test_foreign_member_gets_no_partitions_and_no_address() -> None:
    """Keys are forwarded to the addresses in the plan."""
    here, thief = node(), node("thief", secret=b"guessed")
    with capture_logs() as lines:
        decide(here, thief)
    assert here.assignment == Assignment(frozenset(range(4)), urls=dict.fromkeys(range(4), "http://here:1"))
    assert not here.fault
    assert thief.assignment == Assignment(frozenset())
    assert [(line["event"], line["member"]) for line in lines] == [("group.stranger", "1")]


def test_kafka_keeps_deployments_apart() -> None:
    """A leader of another deployment would assign nothing to the nodes of this one."""
    assert node().name == node("there").name != node(secret=b"guessed").name


def test_plan_of_foreign_leader_is_ignored() -> None:
    here, thief = node(), node("thief", secret=b"guessed")
    plan = thief.assign(CLUSTER, {"a": thief.metadata([COMMANDS])})["a"]
    with capture_logs() as lines:
        here.on_assignment(plan)
    assert here.assignment == Assignment(frozenset())
    assert here.fault
    assert [line["event"] for line in lines] == ["group.stranger"]


@pytest.mark.parametrize("said", [b"", b"short", bytes(32), bytes(64)])
def test_unsigned_metadata_is_ignored(said: bytes) -> None:
    here = node()
    said_by = {"a": here.metadata([COMMANDS]), "b": ConsumerProtocolMemberMetadata(0, [COMMANDS], said)}
    assert here.assign(CLUSTER, said_by)["b"].user_data == b""


def test_member_seal_is_not_valid_for_plan() -> None:
    seal = Seal(SECRET)
    assert seal.take(PLAN, seal.put(PLAN, b"data")) == b"data"
    assert seal.take(PLAN, seal.put(MEMBER, b"data")) is None


# --- two nodes at one address -----------------------------------------------------------------------------------------


def at(host: str, since: int, *owned: int) -> Member:
    return Member("http://127.0.0.1:8000", 1, owned, (), 1, Holder(host, 1, since, f"{host}-{since}"))


@pytest.mark.parametrize(
    ("members", "excluded"),
    [
        ({"a": at("x", 1), "b": at("y", 2, 0, 1)}, "a"),
        ({"a": at("x", 1), "b": at("y", 2)}, "b"),
        ({"a": at("x", 1, 0, 1), "b": at("x", 2)}, "a"),
        ({"b": at("x", 1, 0, 1), "a": at("x", 2, 2)}, "b"),
    ],
    ids=["has partitions", "older", "killed, same host", "newer, same host"],
)
def test_one_of_two_nodes_at_one_address_is_excluded(members: dict[str, Member], excluded: str) -> None:
    (id, reason), *others = same_address(members).items()
    assert id == excluded
    assert not others
    for node in members.values():
        assert str(node.holder) in reason
    assert "EARSHOT_ADVERTISE" in reason


def test_excluded_node_gets_no_partitions_and_knows_why() -> None:
    one, other, third = node(), node(), node("there")
    with capture_logs() as lines:
        decide(one, other, third)
    assert [line["event"] for line in lines] == ["group.same_address"]
    (out,) = [each for each in (one, other) if each.excluded is not None]
    (left,) = [each for each in (one, other) if each.excluded is None]
    assert out.assignment.owned == frozenset()
    assert out.assignment.standbys == frozenset()
    assert left.assignment.owned | third.assignment.owned == set(range(4))
    assert third.excluded is None


def test_node_that_leaves_gets_no_partitions_and_learns_who_has_them() -> None:
    here, there = node("here"), node("there")
    decide(here, there)
    here.leaving = True
    decide(there, here)
    assert (here.assignment.owned, here.assignment.standbys, here.fault) == (frozenset(), frozenset(), None)
    assert set(here.assignment.urls.values()) == {"http://there:1"}
    there.leaving = True
    decide(there, here)
    assert (there.assignment.owned, there.assignment.urls) == (frozenset(), {}), "nobody is left"
