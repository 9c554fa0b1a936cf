"""Assignment of partitions."""

from collections.abc import Mapping, Sequence

import msgspec


class Assignment(msgspec.Struct, frozen=True):
    """The partitions assigned to one node."""

    owned: frozenset[int]
    #: Partitions of other nodes whose tables this node keeps up to date, to take them over at once.
    standbys: frozenset[int] = frozenset()
    #: Addresses of the partitions' owners, if known.
    urls: Mapping[int, str] = {}
    #: The group's generation: a greater one is newer.
    generation: int = 0
    #: Those of the standbys that this node gets once their tables are up to date.
    coming: frozenset[int] = frozenset()
    #: Addresses of the other nodes, also without partitions.
    others: frozenset[str] = frozenset()
    #: Addresses of the other nodes that stand by for a partition.
    standby_urls: Mapping[int, Sequence[str]] = {}
