"""What every unit test has: a loop for those that are coroutines, and no work that each would do again."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from functools import cache

import httpcore2
import pytest
from hypothesis import HealthCheck, settings
from structlog.dev import ConsoleRenderer, plain_traceback
from typer.utils import get_params_from_function

# No test is judged by a clock: machines are shared.
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")


@pytest.fixture(scope="session", autouse=True)
def done_once() -> Iterator[None]:
    """The certificates of every HTTP client take 30 ms; the options of all commands, at every command, 50 ms."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpcore2, "default_ssl_context", cache(httpcore2.default_ssl_context))
        patch.setattr("typer.main.get_params_from_function", cache(get_params_from_function))
        yield


@pytest.fixture(scope="session", autouse=True)
def plain_tracebacks() -> Iterator[None]:
    """A traceback that the log shows with its source in colours takes 60 ms."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConsoleRenderer.get_active(), "exception_formatter", plain_traceback)
        yield


@pytest.fixture
def loop() -> Iterator[asyncio.Runner]:
    """The loop of a test that is a coroutine, for fixtures that begin or end something on it."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine to its end."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    runner = pyfuncitem.funcargs.get("loop")
    (runner.run if isinstance(runner, asyncio.Runner) else asyncio.run)(pyfuncitem.obj(**given))
    return True
