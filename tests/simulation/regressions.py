"""Faults that were fixed, put back one at a time: the simulator must find each."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

REGRESSIONS: Final[dict[Any, Callable[[], AbstractContextManager[None]]]] = {None: nullcontext}
