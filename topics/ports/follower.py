"""Protocols for waiting until a session or job changes."""

from typing import Protocol


class Subscription(Protocol):
    """A subscription that calls a reader when a session changes."""

    def close(self) -> None: ...


class Follower(Protocol):
    """A subscription to changes of a session or job; register before reading, so that no change is missed."""

    async def changed(self, timeout: float) -> bool:
        """Wait for a change since the last call, or since registration; return False after `timeout` seconds.

        Raises:
            Unavailable: another node has taken over the partition.
        """

    def close(self) -> None: ...
