"""The expected list of a project, from the heads of its sessions or jobs."""

from typing import Any

from streams.folding.head_store import HeadStore, above
from topics import keys
from topics.ports.lists import ListQuery


def listed(store: HeadStore[Any], project: str, **query: Any) -> list[str]:
    return [entry.id for entry in store.listed(ListQuery(project, **query))]


def assert_listed(store: HeadStore[Any]) -> None:
    """Check that all projects' lists have every readable entry once, newest first, and that nothing else stays."""
    expected = set()
    for id in list(store.all_ids()):
        head = store.peek(id)
        key = store.list_key(id, head, store.partition.get(store.row_key(id, keys.REQUEST)))
        if key is not None:
            expected.add(key)
        if head is not None and store.listed_as(head) is not None:
            assert key is not None, f"{id} has no place in a list"
    projects = {key[1 : key.index(0, 1)].decode() for key in expected}
    found = [entry for project in projects for entry in store.listed(ListQuery(project))]
    assert sorted(entry.id for entry in found) == sorted(keys.parse_list_place(key)[1] for key in expected)
    for project in projects:
        times = [entry.time_ms for entry in store.listed(ListQuery(project))]
        assert times == sorted(times, reverse=True)
    stored = {key for key, _ in store.partition.scan(store.listing, above(store.listing))}
    assert expected <= stored
    # Remains of a crash are ignored; reading a list deletes them.
    assert all(key[1 : key.index(0, 1)].decode() not in projects for key in stored - expected)
