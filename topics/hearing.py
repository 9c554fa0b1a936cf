"""A project's own sounds, which its sessions and jobs report besides the tags of a model."""

from typing import Final

import msgspec

#: The separator between a model's id and the names of own sounds.
_AND: Final = "+"
#: The warning in results if another model stands in; only the operator learns the cause.
STANDS_IN: Final = "the intended model cannot be used"


class Hearing(msgspec.Struct, frozen=True, array_like=True):
    """The own sounds of a session or job: classifier heads on the embeddings of a model's contexts."""

    #: Their scores follow those of the model's tags.
    sounds: tuple[str, ...] = ()
    #: float32[2, sounds, dimension + 1], little-endian, biases last: heads for streams, then for recordings.
    heads: bytes = b""
    #: Whether to keep the embeddings of contexts with the windows, so that sounds can be learnt from them.
    keeps: bool = False
    #: Whether the model replaces the intended one, which cannot be used.
    stands_in: bool = False


class OwnSound(msgspec.Struct, frozen=True):
    """A sound that a project has taught."""

    name: str
    #: SHA-256 of the graph whose embeddings it was learnt from.
    graph: str
    #: float32[dimension + 1], little-endian: its heads for streams, and for recordings.
    stream: bytes
    recording: bytes


class OwnSounds(msgspec.Struct, frozen=True):
    """A project's own sounds for new sessions and jobs."""

    #: Whether to keep embeddings with the windows.
    keeps: bool = False
    on: tuple[OwnSound, ...] = ()


def model_with(model: str, sounds: tuple[str, ...]) -> str:
    """Return the id of a model with own sounds, which `Sessions.tags` accepts."""
    return _AND.join((model, *sounds))


def parts_of(model: str) -> tuple[str, tuple[str, ...]]:
    """Return the id of the model itself, and the names of its own sounds."""
    own, *sounds = model.split(_AND)
    return own, tuple(sounds)
