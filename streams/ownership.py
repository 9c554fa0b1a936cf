"""The owners of partitions."""

from collections.abc import Mapping

import msgspec


class Assignment(msgspec.Struct, frozen=True):
    """The partitions of one node, as the nodes have agreed."""

    owned: frozenset[int]
    #: Partitions of others whose tables this node keeps up with, to take them over at once.
    standbys: frozenset[int] = frozenset()
    #: Addresses of the partitions' owners, where known.
    urls: Mapping[int, str] = {}
