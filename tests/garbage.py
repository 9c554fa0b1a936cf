"""Shows what reference counts free, without the garbage collector."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Keep cyclic garbage during the body."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
