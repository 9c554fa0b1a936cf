"""The service that most of these tests kill."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import BOTH_LOGS, own_log
from tests.lengths import SESSION_SECONDS
from tests.process import ServiceProcess


@pytest.fixture(params=BOTH_LOGS)
def victim(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServiceProcess]:
    """A service on an unshared log."""
    with own_log(request.param, SESSION_SECONDS) as settings:
        process = ServiceProcess(tmp_path / "data", **settings)
        yield process.start()
        process.stop()
