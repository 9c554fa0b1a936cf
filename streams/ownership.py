"""Which partitions are whose."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Assignment(msgspec.Struct, frozen=True):
    """What one node owns, as the nodes have agreed."""

    owned: frozenset[int]
    #: Partitions of others whose tables this node keeps up with, to take them over at once.
    standbys: frozenset[int] = frozenset()
    #: Where the owner of each partition answers, as far as one is known.
    urls: Mapping[int, str] = {}
