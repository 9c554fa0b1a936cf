"""Runs the scripts of the lab."""

import sys
from collections.abc import Callable
from pathlib import Path

from topics.errors import EarshotError


def run(main: Callable[[], None]) -> None:
    """Run a script; after an error of ours or of a file, print it in one line and exit with status 2."""
    try:
        main()
    except (OSError, EarshotError) as error:
        print(f"{Path(main.__code__.co_filename).stem}: {error}", file=sys.stderr)
        sys.exit(2)
