"""What every test of the agents needs."""

from __future__ import annotations

import pytest

from streams.agents import analyser, fold


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries come at once."""
    monkeypatch.setattr(analyser, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(analyser, "LONGEST_PAUSE_SECONDS", 0.002)
    monkeypatch.setattr(fold, "PAUSE_SECONDS", 0.0)
