"""Tests that are coroutines, and retries that come at once."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator

import pytest

from streams.folding import batch, retry


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    """The event loop of a test, for fixtures that need it before or after."""
    with asyncio.Runner() as running:
        yield running


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in the loop of its fixture `runner`, if it has one, or in a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    runner = pyfuncitem.funcargs.get("runner")
    (runner.run if isinstance(runner, asyncio.Runner) else asyncio.run)(pyfuncitem.obj(**arguments))
    return True


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries come at once."""
    monkeypatch.setattr(retry, "FIRST_SECONDS", 0.001)
    monkeypatch.setattr(retry, "LONGEST_SECONDS", 0.002)
    monkeypatch.setattr(batch, "PAUSE_SECONDS", 0.0)
