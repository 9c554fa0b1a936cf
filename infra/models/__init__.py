"""Models that ship with the service, and the scripts that made them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

DEFAULT: Final = "yamnet"
_HERE: Final = Path(__file__).parent


def directory(name_or_path: str = DEFAULT) -> Path:
    """Return the directory of a bundled model by its name, or the path itself for any other model.

    Whether the directory holds a usable model is for the engine to say.
    """
    bundled = _HERE / name_or_path
    if name_or_path.isidentifier() and (bundled / "manifest.json").is_file():
        return bundled
    return Path(name_or_path)
