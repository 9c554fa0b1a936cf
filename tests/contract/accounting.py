"""Fails a run of the whole contract tier that has not met every operation and status, in one process or in several."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

HERE: Final = Path(__file__).parent
WHOLE: Final = pytest.StashKey[bool]()
MISSING: Final = pytest.StashKey[list[str]]()

#: (name of the operation, status) of every answer that was held against the document.
met: set[tuple[str, int]] = set()


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Note that a part of the tier is left out; the same cases on Kafka are no part of their own."""
    for item in items:
        if item.path.parent == HERE and "kafka" not in item.keywords:
            item.config.stash[WHOLE] = False


def pytest_collection_finish(session: pytest.Session) -> None:
    """Note whether every test of the tier was chosen."""
    seen = {item.path for item in session.items if item.path.parent == HERE}
    all_of_it = seen == set(HERE.glob("test_*.py")) and not any("::" in one for one in session.config.args)
    session.config.stash[WHOLE] = session.config.stash.get(WHOLE, True) and all_of_it


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Take over what a process of several has met."""
    output = getattr(node, "workeroutput", {})
    met.update(output.get("met", ()))
    node.config.stash[WHOLE] = output.get("whole", False)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail a whole run that is good otherwise, if it has not met everything."""
    config = session.config
    whole = config.stash.get(WHOLE, False)
    if hasattr(config, "workeroutput"):
        config.workeroutput.update(whole=whole, met=sorted(met))
    elif whole and exitstatus == 0 and not config.option.collectonly:
        from tests.contract.answers import promised

        if missing := [f"{name} {status}" for name, status in sorted(promised() - met)]:
            config.stash[MISSING] = missing
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if missing := config.stash.get(MISSING, None):
        terminalreporter.section("operations and statuses that no test of the contract has met", red=True)
        terminalreporter.line(", ".join(missing))
