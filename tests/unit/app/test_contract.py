"""The cases that run on both logs, over the double of sessions too: a fake promises what the logs do."""

from __future__ import annotations

from types import ModuleType
from typing import Final

from tests.contract import test_live, test_reads, test_service, test_states, test_uploads

MODULES: Final[tuple[ModuleType, ...]] = (test_live, test_reads, test_service, test_states, test_uploads)

for module in MODULES:
    for name, test in vars(module).items():
        if any(mark.name == "both_logs" for mark in getattr(test, "pytestmark", ())):
            globals()[name] = test
