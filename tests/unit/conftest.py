"""What every unit test has: no judgement by a clock, and no work that each would do again."""

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
