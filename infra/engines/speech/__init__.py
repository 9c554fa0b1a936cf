"""Speech to text: the endpoint, and the processes that run Whisper."""

import sys
from typing import Final

#: Starts a process with Whisper (`__main__.py`).
COMMAND: Final = (sys.executable, "-m", __name__)
