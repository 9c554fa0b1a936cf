"""Windows of sessions and of jobs."""

from typing import Final

import msgspec

#: The tag of a window in which nothing was recognised.
NO_SOUND: Final = "Others"


class Tag(msgspec.Struct, frozen=True):
    """A recognised sound and its probability, 0 to 1."""

    name: str
    probability: float


class Event(msgspec.Struct, frozen=True, rename={"start": "start_time", "end": "end_time"}):
    """A window and the sounds that were recognised in it.

    Attributes:
        start: seconds from the beginning of the audio.
        end: seconds from the beginning of the audio.
        tags: the sounds; a single tag `Others` if there are none.
    """

    start: float
    end: float
    tags: tuple[Tag, ...]

    @property
    def sounds(self) -> tuple[Tag, ...]:
        """The tags without `Others`; empty if no sound was recognised."""
        return tuple(tag for tag in self.tags if tag.name != NO_SOUND)


class SoundClass(msgspec.Struct, frozen=True, rename={"name": "class"}):
    """A recognised sound and its confidence, 0 to 1."""

    name: str
    confidence: float


class Window(msgspec.Struct, frozen=True, rename={"start": "start_time_sec", "end": "end_time_sec"}):
    """A window and the sounds that were recognised in it.

    Attributes:
        start: seconds from the beginning of the recording.
        end: seconds from the beginning of the recording.
        classes: the sounds, the most confident first; empty if there are none.
    """

    start: float
    end: float
    classes: tuple[SoundClass, ...] = ()
