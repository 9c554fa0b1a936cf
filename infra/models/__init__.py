"""The registry of models, and the models that ship with the service."""

from pathlib import Path
from typing import Final

#: The model used if none is chosen, and the one used if the weights of the default's second model are damaged.
DEFAULT: Final = "yamnet_ced"
YAMNET: Final = "yamnet"
#: The model that tells voices apart.
SPEAKERS: Final = "speaker_pair"
#: The network that detects two voices at once.
OVERLAP: Final = "overlap"
_HERE: Final = Path(__file__).parent


def directory(name_or_path: str = DEFAULT) -> Path:
    """Return the directory of a bundled model by name, or the path itself for any other model.

    The directory is not checked; the engine that loads it checks it.
    """
    bundled = _HERE / name_or_path
    if name_or_path.isidentifier() and (bundled / "manifest.json").is_file():
        return bundled
    return Path(name_or_path)
