"""A recording to begin with: `smoke-alarm.flac`, made by `python -m infra.examples` and so free of anybody's rights."""

from pathlib import Path
from typing import Final

RECORDING: Final = Path(__file__).parent / "smoke-alarm.flac"
