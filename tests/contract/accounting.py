"""Fails a complete run of the edge's unit tests, in any number of processes, that missed an operation or a status."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

HERE: Final = Path(__file__).parent.parent / "unit" / "app"
#: Tests of the client check no answers.
CLIENT: Final = HERE / "client"
WHOLE: Final = pytest.StashKey[bool]()
MISSING: Final = pytest.StashKey[list[str]]()

#: (operation name, status) of every answer checked against the document.
met: set[tuple[str, int]] = set()


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Note that a part of them is deselected."""
    for item in items:
        if _counts(item.path):
            item.config.stash[WHOLE] = False


def pytest_collection_finish(session: pytest.Session) -> None:
    """Note whether every one of them was chosen."""
    seen = {item.path for item in session.items if _counts(item.path)}
    all_of_it = seen == set(filter(_counts, HERE.rglob("test_*.py"))) and not any(
        "::" in one for one in session.config.args
    )
    session.config.stash[WHOLE] = session.config.stash.get(WHOLE, True) and all_of_it


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Merge the results of a worker process."""
    output = getattr(node, "workeroutput", {})
    met.update(output.get("met", ()))
    node.config.stash[WHOLE] = output.get("whole", False)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail an otherwise good complete run that missed something."""
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
        terminalreporter.section("operations and statuses that no unit test of the edge has met", red=True)
        terminalreporter.line(", ".join(missing))


def _counts(path: Path) -> bool:
    return HERE in path.parents and CLIENT not in path.parents
