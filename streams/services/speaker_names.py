"""Names for the speakers of a job."""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from streams.models.protocol import Floats

#: Used as cosine if no registered speaker was recognised.
NO_SCORE: Final = -1.0


class SpeakerNames(Protocol):
    """Looks for the registered speakers of an organization."""

    async def names(
        self, organization: str, voices: Sequence[Floats], warn: Callable[[str], None]
    ) -> Sequence[tuple[str, float]]:
        """Return a name and the score of the match for each speaker of a recording, in order of number.

        Call `warn` if registered speakers cannot be recognised.

        `voices` holds some samples of each speaker, float32[n] at 16 kHz, perhaps none. Speakers who are not registered
        are `Unknown 0`, `Unknown 1`, … with the score `NO_SCORE`.

        Raises:
            ServiceError: speakers cannot be looked up now.
        """


class UnknownSpeakers:
    """`SpeakerNames` of a deployment without registered speakers. Loop only."""

    async def names(
        self, organization: str, voices: Sequence[Floats], warn: Callable[[str], None]
    ) -> Sequence[tuple[str, float]]:
        """Return `Unknown 0`, `Unknown 1`, … with the score `NO_SCORE`."""
        return unknown_names(len(voices))


def unknown_name(number: int) -> str:
    """Return the name of a speaker who is not registered; each recording counts its own from 0."""
    return f"Unknown {number}"


def unknown_names(count: int) -> list[tuple[str, float]]:
    """Return names and scores of this many unregistered speakers."""
    return [(unknown_name(number), NO_SCORE) for number in range(count)]
