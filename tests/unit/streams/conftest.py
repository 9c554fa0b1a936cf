"""Retries without pauses, workers that are threads, and a check of records that are folded without being read."""

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from streams.folding import batch, retry
from streams.folding.fold import Fold
from streams.log import StoredRecord
from streams.processes.child import Child
from tests.stored import assert_stored
from tests.unit.streams.workers.double import NOBODY
from topics import record_codec


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


@pytest.fixture(autouse=True)
def folded_records_are_those_stored() -> Iterator[None]:
    folded: list[tuple[Fold[Any], StoredRecord]] = []
    content = Fold.content

    def noting(fold: Fold[Any], record: StoredRecord) -> Any:
        if record.content is not None:
            folded.append((fold, record))
        return content(fold, record)

    with mock.patch.object(Fold, "content", noting):
        yield
    for fold, record in folded:
        assert record.content is not None
        assert record_codec.encode(record.content) == record.value
        assert_stored(record.content, fold.decode)
