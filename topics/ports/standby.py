"""The edge's access to what a node stands by for."""

from collections.abc import Sequence
from typing import Protocol

from topics.ports.jobs import Jobs
from topics.ports.sessions import Sessions


class Standby(Protocol):
    """Reads sessions and jobs whose owner is away. Loop only."""

    @property
    def sessions(self) -> Sessions:
        """The sessions here, for reads alone."""

    @property
    def jobs(self) -> Jobs:
        """The jobs here, for reads alone."""

    async def as_of(self, id: str) -> int:
        """Return a time (Unix time in ms) up to which everything about an id is known here.

        All windows that anybody could read before the call are here, and nothing whose deletion was confirmed.

        Raises:
            Unavailable: this node does not stand by for it, or its table is not up to date.
        """

    def urls(self, id: str) -> Sequence[str]:
        """Return the URLs of the other nodes that stand by for an id."""
