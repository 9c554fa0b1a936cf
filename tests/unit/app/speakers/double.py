"""The speakers port in memory: voices are identified by their bytes."""

import asyncio
import os
from collections.abc import Sequence
from typing import Final

import msgspec

from topics.errors import EarshotError, RuleBroken
from topics.ports.speakers import Profile, ReEnrollment, SpeakerTurn

#: Registration time of the first speaker, milliseconds: 2026-01-02T03:04:05.678Z.
BEGINNING: Final = 1_767_323_045_678
#: A voice lasts a second per byte.
MS_OF_A_BYTE: Final = 1000


class Registered(msgspec.Struct):
    """A speaker, and their recordings."""

    created_at: int
    voices: list[bytes] = []
    compatible: bool = True
    #: Samples whose recording was not kept.
    lost: int = 0
    display_name: str | None = None

    def profile(self, name: str) -> Profile:
        """Return the port's view of the speaker."""
        length = MS_OF_A_BYTE * sum(map(len, self.voices))
        return Profile(name, self.created_at, length, len(self.voices), self.compatible, self.display_name)


class MemorySpeakers:
    """The port `Speakers`: a recording is one turn of the speaker registered with the same bytes."""

    def __init__(self) -> None:
        self.organizations: dict[str, dict[str, Registered]] = {}
        #: Raised by every call.
        self.failure: EarshotError | None = None
        self.calls = 0
        #: Turns of every recording, in place of the one that its bytes say.
        self.turns: Sequence[SpeakerTurn] | None = None
        #: Recording, content type and stretches of each passage.
        self.passages: list[tuple[bytes, str, tuple[tuple[int, int], ...]]] = []

    async def profiles(self, organization: str) -> Sequence[Profile]:
        registered = await self._of(organization)
        return [registered[name].profile(name) for name in sorted(registered)]

    async def register(self, organization: str, speaker: str, file: int) -> Profile:
        registered = await self._of(organization)
        if speaker not in registered:
            registered[speaker] = Registered(BEGINNING + len(registered))
        known = registered[speaker]
        known.voices.append(_content(file))
        return known.profile(speaker)

    async def register_passage(
        self, organization: str, speaker: str, file: int, content_type: str, spans: Sequence[tuple[int, int]]
    ) -> Profile:
        self.passages.append((_content(file), content_type, tuple(spans)))
        return await self.register(organization, speaker, file)

    async def name(self, organization: str, speaker: str, display_name: str | None) -> Profile:
        known = self._known(await self._of(organization), speaker)
        known.display_name = display_name
        return known.profile(speaker)

    async def remove(self, organization: str, speaker: str) -> None:
        registered = await self._of(organization)
        self._known(registered, speaker)
        del registered[speaker]

    async def recognize(self, organization: str, file: int) -> Sequence[SpeakerTurn]:
        registered = await self._of(organization)
        if self.turns is not None:
            return self.turns
        voice = _content(file)
        name = next((name for name, known in registered.items() if voice in known.voices), None)
        length = MS_OF_A_BYTE * len(voice)
        return [SpeakerTurn(30, length, "", 0, name or "Unknown 0", 1.0 if name else -1.0, known=name is not None)]

    async def re_enroll(self, organization: str, speaker: str) -> ReEnrollment:
        known = self._known(await self._of(organization), speaker)
        outcome = ReEnrollment(0 if known.compatible else len(known.voices) - known.lost, known.lost)
        known.compatible = not known.lost
        return outcome

    async def _of(self, organization: str) -> dict[str, Registered]:
        self.calls += 1
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        return self.organizations.setdefault(organization, {})

    def _known(self, registered: dict[str, Registered], speaker: str) -> Registered:
        if speaker not in registered:
            raise RuleBroken("speaker not found")
        return registered[speaker]


def _content(file: int) -> bytes:
    return os.pread(file, os.fstat(file).st_size, 0)
