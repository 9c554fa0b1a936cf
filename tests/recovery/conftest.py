"""The service that most of these tests kill."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import BOTH_LOGS, own_log
from tests.lengths import SESSION_SECONDS
from tests.process import ServiceProcess

ON_EMBEDDED = pytest.mark.parametrize("victim", ["embedded"], indirect=True)


@pytest.fixture
def settings() -> dict[str, str]:
    """Settings of the victim besides its log, for files to replace."""
    return {}


@pytest.fixture(params=BOTH_LOGS)
def victim(request: pytest.FixtureRequest, settings: dict[str, str], tmp_path: Path) -> Iterator[ServiceProcess]:
    """A service on an unshared log; tests with the mark `ON_EMBEDDED` do not need Kafka."""
    with (
        own_log(request.param, SESSION_SECONDS) as log,
        ServiceProcess(tmp_path / "data", **log, **settings) as process,
    ):
        yield process
