"""The speakers of a recording, by name where they are registered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from streams.models.protocol import Floats
from streams.speakers.matching import NO_SCORE, Match, match, named
from streams.speakers.prints import Voiceprints
from streams.speakers.roster import Enrolled, Roster
from streams.voice.activity import RATE

#: Less speech says too little of a voice.
LEAST_S: Final = 0.5
NOBODY: Final = Match(None, NO_SCORE)


class Naming:
    """Finds registered speakers; for jobs this is `streams.services.voices.Voices`."""

    def __init__(self, roster: Roster, prints: Voiceprints) -> None:
        """Look for speakers of `roster`."""
        self._roster = roster
        self._prints = prints

    async def names(self, organization: str, voices: Sequence[Floats]) -> Sequence[tuple[str, float]]:
        """Return a name and a score for each speaker of a recording, -1.0 for who is not registered; see `Voices`.

        Raises:
            DirectoryDown: the roster does not answer.
            EngineAway: the speaker engine does not answer.
        """
        enrolled = await self._roster.enrolled(organization)
        # Nobody can be found: the engine need not be asked, nor be there.
        found = [NOBODY] * len(voices) if not enrolled else await self.matches(enrolled, voices)
        scores = [NO_SCORE if one.name is None else one.score for one in found]
        return list(zip(named(found), scores, strict=True))

    async def matches(self, enrolled: Sequence[Enrolled], voices: Sequence[Floats]) -> list[Match]:
        """Return who of `enrolled` each speaker of a recording is, float32[n] of each at 16 kHz (`telling` or not).

        Raises:
            EngineAway: the speaker engine does not answer.
        """
        embedded = iter(await self._prints.embed_all([voice for voice in voices if telling(voice)]))
        found = []
        for voice in voices:
            if telling(voice):
                known = next(embedded)
                found.append(match(known, enrolled, self._prints.threshold(known, len(enrolled))))
            else:
                found.append(NOBODY)
        return found


def telling(voice: Floats) -> bool:
    """Tell whether float32[n] at 16 kHz is enough to know a voice by."""
    return len(voice) >= LEAST_S * RATE
