"""Requests that schemathesis makes of the document: no check of it finds anything that has no reason."""

import warnings
from pathlib import Path
from typing import Final

import pytest

from tests.contract.generated import findings
from tests.process import ServiceProcess

#: Requests of each operation, good and bad each: as many on a slow machine.
EXAMPLES: Final = 4


@pytest.mark.timeout(900)
def test_generated_requests_are_answered_as_the_document_says(tmp_path: Path) -> None:
    """On a service of their own: they change the settings of its project."""
    service = ServiceProcess(tmp_path / "data").start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = findings(service, EXAMPLES)
        assert service.running
    finally:
        service.stop()
    assert found == {}
    log = service.log.read_text(errors="replace").splitlines()
    assert [line for line in log if "Traceback" in line] == []
