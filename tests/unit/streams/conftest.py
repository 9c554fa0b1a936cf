"""Retries without pauses, and workers that are threads."""

from collections.abc import Iterator

import pytest

from streams.decoders.child import Child
from streams.folding import batch, retry
from tests.unit.streams.workers.double import NOBODY


@pytest.fixture(scope="module", autouse=True)
def threads_are_not_killed() -> Iterator[None]:
    """No outsider can kill a thread, and the system knows nothing of its end."""
    was_killed = Child.was_killed
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Child, "was_killed", lambda child: child.number != NOBODY and was_killed(child))
        yield


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_SECONDS", 0.001)
    monkeypatch.setattr(retry, "LONGEST_SECONDS", 0.002)
    monkeypatch.setattr(batch, "PAUSE_SECONDS", 0.0)
