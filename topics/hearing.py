"""What a project wants heard beside the tags of a model: sounds of its own, and what such sounds are learnt from."""

from typing import Final

import msgspec

#: Between a model's id and the names of own sounds.
_AND: Final = "+"
#: What results say if the model stands in for another one. What is wrong with that one is for the operator.
STANDS_IN: Final = "the model that should hear cannot be used"


class Hearing(msgspec.Struct, frozen=True, array_like=True):
    """Own sounds of a project: heads on the embedding of a model's looks. They come with each session and job."""

    #: Their scores come behind those of the model's tags.
    sounds: tuple[str, ...] = ()
    #: float32[2, sounds, dimension + 1], little-endian, biases last: heads for streams, then those for recordings.
    heads: bytes = b""
    #: The embeddings of looks are kept with the windows, so that sounds can be learnt from them.
    keeps: bool = False
    #: The model stands in for the one that should hear, which cannot be used.
    stands_in: bool = False


class OwnSound(msgspec.Struct, frozen=True):
    """A sound that a project has taught."""

    name: str
    #: SHA-256 of the graph from whose embeddings it was learnt.
    graph: str
    #: float32[dimension + 1], little-endian: its heads for streams, and for recordings.
    stream: bytes
    recording: bytes


class OwnSounds(msgspec.Struct, frozen=True):
    """What a project wants heard in its new sessions and jobs."""

    #: Embeddings are kept with windows.
    keeps: bool = False
    on: tuple[OwnSound, ...] = ()


def model_with(model: str, sounds: tuple[str, ...]) -> str:
    """Return the id of a model that also scores own sounds: what `Sessions.tags` knows the tags of."""
    return _AND.join((model, *sounds))


def parts_of(model: str) -> tuple[str, tuple[str, ...]]:
    """Return the id of the model itself, and the names of own sounds."""
    own, *sounds = model.split(_AND)
    return own, tuple(sounds)
