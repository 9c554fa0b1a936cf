"""Retries without pauses."""

import pytest

from streams.folding import batch, retry


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_SECONDS", 0.001)
    monkeypatch.setattr(retry, "LONGEST_SECONDS", 0.002)
    monkeypatch.setattr(batch, "PAUSE_SECONDS", 0.0)
