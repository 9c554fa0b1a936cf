"""Analyses audio in separate processes, so that nothing competes with the event loop for its interpreter."""

import sys
from typing import Final

#: Starts the zygote of workers (`__main__.py`).
COMMAND: Final = (sys.executable, "-m", __name__)
