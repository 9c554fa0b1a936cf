"""Schemathesis finds no unexplained fault with requests generated from the document."""

import warnings
from pathlib import Path
from typing import Final

import pytest

from tests.contract.generated import findings
from tests.lengths import length
from tests.process import ServiceProcess

#: Requests per operation, valid and invalid each; the same number on slow machines.
EXAMPLES: Final = length("EXAMPLES", 4)


@pytest.mark.timeout(900 + 30 * EXAMPLES)
def test_generated_requests_conform_to_document(tmp_path: Path) -> None:
    """On a separate service, because the requests change its project's settings."""
    with ServiceProcess(tmp_path / "data") as service, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = findings(service, EXAMPLES)
    assert found == {}
    log = service.log.read_text(errors="replace").splitlines()
    assert [line for line in log if "Traceback" in line] == []
