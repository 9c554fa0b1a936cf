"""What an answer from several nodes lacks."""

import msgspec


class MissingPart(msgspec.Struct, frozen=True):
    """The part that a page lacks: `partitions` of `of` are on nodes that did not answer."""

    partitions: int
    of: int
