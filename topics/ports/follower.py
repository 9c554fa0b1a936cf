"""Waiting for a session or job to change."""

from typing import Protocol


class Watch(Protocol):
    """A reader that is called when a session changes."""

    def close(self) -> None: ...


class Follower(Protocol):
    """A reader that waits for a session or job to change; registered before it reads, so that no change is missed."""

    async def changed(self, timeout: float) -> bool:
        """Wait until it changed since the last call or since registration; False after `timeout` s.

        Raises:
            Unavailable: the partition went to another node.
        """

    def close(self) -> None: ...
