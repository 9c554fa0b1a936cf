"""Shared by all unit tests: no deadlines, and expensive set-up done once."""

from collections.abc import Iterator
from functools import cache

import pytest
from hypothesis import HealthCheck, settings
from structlog.dev import ConsoleRenderer, plain_traceback
from typer.utils import get_params_from_function

from tests.lengths import length

# Machines are shared, so no test has a deadline. `make test` has the same examples in every run, `make soak` others.
settings.register_profile(
    "shared",
    deadline=None,
    derandomize=not length("RANDOM", 0),
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("shared")


@pytest.fixture(scope="session", autouse=True)
def options_read_once() -> Iterator[None]:
    """Options take 50 ms per command."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.main.get_params_from_function", cache(get_params_from_function))
        yield


@pytest.fixture(scope="session", autouse=True)
def plain_tracebacks() -> Iterator[None]:
    """A coloured traceback with source in the log takes 60 ms."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConsoleRenderer.get_active(), "exception_formatter", plain_traceback)
        yield
