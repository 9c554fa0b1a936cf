"""Shares of organizations, projects and sessions in what is served one item after the other."""

from collections import Counter

from topics.turns import REMEMBERED, Holder, Shares


def served(shares: Shares[Holder], costs: dict[Holder, float], items: int) -> Counter[Holder]:
    """Serve so many items, which cost what their holders' items cost, and return how many of each holder."""
    taken: Counter[Holder] = Counter()
    for _ in range(items):
        holder = shares.take()
        assert holder is not None
        shares.charge(holder, costs[holder])
        taken[holder] += 1
    return taken


def test_shares_are_by_organization_then_project_then_subject() -> None:
    one = Holder("one", "p")
    many = [Holder("other", f"p{number}") for number in range(4)]
    sessions = [Holder("third", "p", f"s{number}") for number in range(8)] + [Holder("third", "q")]
    shares: Shares[Holder] = Shares()
    for holder in (*sessions, *many, one):
        for _ in range(100):
            shares.put(holder, holder)
    taken = served(shares, dict.fromkeys((*sessions, *many, one), 1.0), 96)
    assert taken[one] == sum(taken[holder] for holder in many) == 32
    assert {taken[holder] for holder in many} == {8}
    assert taken[sessions[-1]] == sum(taken[holder] for holder in sessions[:-1]) == 16


def test_what_is_served_counts_by_its_cost() -> None:
    dear, cheap = Holder("dear", "p"), Holder("cheap", "p")
    shares: Shares[Holder] = Shares()
    for holder in (dear, cheap):
        for _ in range(100):
            shares.put(holder, holder)
    taken = served(shares, {dear: 9.0, cheap: 1.0}, 50)
    assert taken == {dear: 5, cheap: 45}


def test_nobody_saves_up_or_owes_while_nobody_waits() -> None:
    shares: Shares[Holder] = Shares()
    busy, idle = Holder("busy", "p"), Holder("idle", "p")
    shares.charge(busy, 1000.0)
    for holder in [busy] * 10 + [idle] * 10:
        shares.put(holder, holder)
    assert [shares.take() for _ in range(2)] == [busy, idle]
    served(shares, {busy: 1.0, idle: 1.0}, 18)
    assert (shares.take(), bool(shares)) == (None, False)
    for holder in [idle] * 10 + [busy] * 10:
        shares.put(holder, holder)
    assert served(shares, {busy: 1.0, idle: 1.0}, 10) == {busy: 5, idle: 5}


def test_items_of_a_holder_keep_their_order() -> None:
    shares: Shares[int] = Shares()
    for number in range(5):
        shares.put(Holder("o", "p", "s"), number)
    assert [shares.take() for _ in range(6)] == [0, 1, 2, 3, 4, None]


def test_remembered_holders_are_bounded() -> None:
    shares: Shares[int] = Shares()
    shares.put(Holder("waits", "p"), 1)
    for number in range(3 * REMEMBERED):
        shares.charge(Holder(f"o{number}", "p"), 1.0)
    assert len(shares._root.parts) <= REMEMBERED
    assert shares.take() == 1
