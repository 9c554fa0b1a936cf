"""What health probes ask."""

from __future__ import annotations

from typing import Protocol


class Health(Protocol):
    """What the probes ask."""

    def alive(self) -> str | None:
        """Return None while the process works, else why it is about to stop."""
        ...

    def ready(self) -> str | None:
        """Return None when requests can be served, else what is waited for."""
        ...
