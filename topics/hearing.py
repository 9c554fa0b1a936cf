"""What sessions and jobs copy of their project when they open: its choices, and its own sounds."""

from typing import Final

import msgspec

from topics.choices import Choices

#: The separator between a model's id and the names of own sounds.
_AND: Final = "+"
#: The warning in results if another model stands in; only the operator learns the cause.
STANDS_IN: Final = "the intended model cannot be used"


class Hearing(msgspec.Struct, frozen=True, array_like=True):
    """The choices and the own sounds of a session or job: classifier heads on the embeddings of a model's contexts."""

    #: Their scores follow those of the model's tags.
    sounds: tuple[str, ...] = ()
    #: float32[2, sounds, dimension + 1], little-endian, biases last: heads for streams, then for recordings.
    heads: bytes = b""
    choices: Choices = Choices()
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


def model_with(model: str, sounds: tuple[str, ...]) -> str:
    """Return the id of a model with own sounds, which `Sessions.tags` accepts."""
    return _AND.join((model, *sounds))


def parts_of(model: str) -> tuple[str, tuple[str, ...]]:
    """Return the id of the model itself, and the names of its own sounds."""
    own, *sounds = model.split(_AND)
    return own, tuple(sounds)
