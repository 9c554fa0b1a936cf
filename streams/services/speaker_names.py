"""Names for the speakers of a job."""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from streams.models.protocol import Floats

#: The cosine if no registered speaker was recognised.
NO_SCORE: Final = -1.0


class SpeakerNames(Protocol):
    """Finds the registered speakers of an organization in recordings."""

    async def names(
        self, organization: str, voices: Sequence[Floats], warn: Callable[[str], None]
    ) -> Sequence[tuple[str, float]]:
        """Return a name and a match score for each speaker of a recording, in order of number.

        `voices` holds some samples of each speaker, float32[n] at 16 kHz, possibly none. Unregistered speakers are
        `Unknown 0`, `Unknown 1`, … with the score `NO_SCORE`. Call `warn` if registered speakers cannot be recognised.

        Raises:
            ServiceError: speakers cannot be looked up at the moment.
        """


def unknown_name(number: int) -> str:
    """Return the name of an unregistered speaker; each recording numbers its own from 0."""
    return f"Unknown {number}"


def unknown_names(count: int) -> list[tuple[str, float]]:
    """Return names and scores for `count` unregistered speakers."""
    return [(unknown_name(number), NO_SCORE) for number in range(count)]
