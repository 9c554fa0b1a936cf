"""An example recording, `smoke-alarm.flac`; `python -m infra.examples` makes it, so nobody else has rights to it."""

from pathlib import Path
from typing import Final

RECORDING: Final = Path(__file__).parent / "smoke-alarm.flac"
