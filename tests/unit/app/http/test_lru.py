"""The bounded mapping."""

from __future__ import annotations

from app.http.lru import Lru


def test_what_was_not_used_for_longest_goes_first() -> None:
    lru: Lru[str, bytes] = Lru(10, weigh=len)
    lru.put("a", b"1234")
    lru.put("b", b"1234")
    assert lru.get("a") == b"1234"
    lru.put("c", b"12")
    lru.put("d", b"1")
    assert (lru.get("b"), lru.get("a"), lru.weight) == (None, b"1234", 7)


def test_a_value_in_place_of_another_weighs_once() -> None:
    lru: Lru[str, bytes] = Lru(10, weigh=len)
    for _ in range(5):
        lru.put("a", b"12345678")
    assert (lru.get("a"), lru.weight) == (b"12345678", 8)
    lru.drop("a")
    lru.drop("a")
    assert (lru.get("a"), lru.weight) == (None, 0)


def test_what_is_too_heavy_is_not_kept() -> None:
    lru: Lru[str, bytes] = Lru(3, weigh=len)
    lru.put("a", b"1234")
    assert (lru.get("a"), lru.weight) == (None, 0)
