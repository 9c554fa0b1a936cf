"""Runs the scripts of the lab."""

import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path

from topics.errors import EarshotError


def script(main: Callable[[list[str] | None], None]) -> Callable[..., int]:
    """Return a script that takes its arguments, by default the command line's, and returns its exit status.

    It is 2 after an error of ours or of a file, which is printed in one line.
    """

    @wraps(main)
    def run(arguments: list[str] | None = None) -> int:
        try:
            main(arguments)
        except (OSError, EarshotError) as error:
            print(f"{Path(main.__code__.co_filename).stem}: {error}", file=sys.stderr)
            return 2
        return 0

    return run
