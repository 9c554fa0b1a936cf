"""A data directory of an earlier version opens; nothing is missing, and nothing deleted returns.

`tests/examples/data-directory` has one of commit 57b4648, the oldest with readable formats: an open stream, a file, a
deleted session and a job whose audio is kept; and that version's answers.
"""

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx2
import msgspec
import pytest

from tests.conftest import ROOT
from tests.contract.api import Api, tone
from tests.process import KEY, ServiceProcess

pytestmark = pytest.mark.slow

DIRECTORY: Final = ROOT / "tests" / "examples" / "data-directory"
EXPECTED: Final[dict[str, Any]] = msgspec.json.decode((DIRECTORY / "expected.json").read_bytes())
#: Nothing in it expires.
LONG: Final = 10**9


@pytest.fixture
def earlier(tmp_path: Path) -> Iterator[ServiceProcess]:
    with tarfile.open(DIRECTORY / "data.tar.xz") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.2 has none.
        archive.extractall(tmp_path)
    kept = {"session_idle_seconds": LONG, "job_retention_seconds": LONG, "audio_retention_seconds": LONG}
    with ServiceProcess(tmp_path / "data", model="sed-mini", partitions=2, **kept) as process:
        yield process


def test_data_of_earlier_version_is_served(earlier: ServiceProcess) -> None:
    with Api(earlier) as api, httpx2.Client(base_url=earlier.url, headers={"X-Api-Key": KEY}, timeout=60) as http:
        for session, (state, windows) in EXPECTED["pages"].items():
            status = api.status(session, count=100).json()
            assert status["state"] == state
            assert status["inference"]["results"][: len(windows)] == windows
        assert api.status(EXPECTED["deleted"]).status_code == 404
        # The open stream continues.
        assert api.put(EXPECTED["stream"], 8, tone(1.0)).json()["chunk_sequence"] == 9
        job = f"/api/v1/jobs/{EXPECTED['job']}"
        assert http.get(job).json()["result"]["sound_event_detection"] == EXPECTED["result"]
        assert len(http.get(f"{job}/audio").content) == 16_413
