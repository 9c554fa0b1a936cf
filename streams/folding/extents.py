"""Remembers where lists have entries, because a seek steps over each deleted entry until RocksDB compacts them.

Ids soon leave the lists of unfinished sessions and jobs, so most of these entries are deleted. Deleted entries in the
write buffer cost a seek up to 16 ms, and RocksDB's compaction of deletions does not help.
"""

from collections.abc import Callable, Iterator
from typing import Final

from topics import keys

#: A range of list places: from the first to below the second.
Extent = tuple[bytes, bytes]
#: Yields the existing keys, with their values, between two keys.
Scan = Callable[[bytes, bytes], Iterator[tuple[bytes, bytes]]]

ALL: Final = (keys.list_place(keys.LATEST_MS - 1), b"\xff" * 9)
NOTHING: Final = (ALL[1], ALL[0])
#: The most lists to remember; a project has one for each state.
MOST: Final = 4096


class ListExtents:
    """Holds the range in which each list may have entries, as learned by reads; by prefix. Loop only."""

    def __init__(self) -> None:
        self._known: dict[bytes, Extent] = {}

    def note(self, key: bytes) -> None:
        place = keys.place_of(key)
        if (known := self._known.get(key[: -len(place)])) is not None:
            self._known[key[: -len(place)]] = min(known[0], place), max(known[1], place + b"\0")

    def entries(self, scan: Scan, prefix: bytes, lower: bytes, upper: bytes) -> Iterator[bytes]:
        """Yield the keys of a list in a range of places; the caller must not add keys during the iteration."""
        first, stop = self._known.get(prefix, ALL)
        from_first, to_end = lower <= first, upper >= stop
        lower, upper = max(lower, first), min(upper, stop)
        if lower >= upper:
            return
        found = None
        for key, _ in scan(prefix + lower, prefix + upper):
            if found is None and from_first:
                first = key[len(prefix) :]
                self._learn(prefix, (first, stop))
            found = key[len(prefix) :]
            yield key
        if to_end and (found is not None or from_first):
            self._learn(prefix, NOTHING if found is None else (first, found + b"\0"))

    def _learn(self, prefix: bytes, extent: Extent) -> None:
        if len(self._known) >= MOST:
            self._known.clear()
        self._known[prefix] = extent
