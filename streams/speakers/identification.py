"""Identifies the registered speakers in a recording."""

from collections.abc import Callable, Sequence
from typing import Final

from streams.models.protocol import Floats
from streams.services.speaker_names import NO_SCORE
from streams.speakers.embedder import VoiceEmbedder
from streams.speakers.matching import NO_MATCH, Match, match, names_of
from streams.speakers.speaker_store import EnrolledSpeaker, SpeakerStore, outdated_warning
from streams.voice.speech_segments import RATE

#: A voice with less speech is not looked up.
MIN_VOICE_S: Final = 0.5


class SpeakerIdentification:
    """Finds registered speakers; jobs use it as `streams.services.speaker_names.SpeakerNames`. Loop only."""

    def __init__(self, store: SpeakerStore, embedder: VoiceEmbedder) -> None:
        self._store = store
        self._embedder = embedder

    async def names(
        self, organization: str, voices: Sequence[Floats], warn: Callable[[str], None]
    ) -> Sequence[tuple[str, float]]:
        """Return a name and a score for each speaker of a recording, in order of number.

        `voices` holds samples of each, float32[n] at 16 kHz, possibly none. Unregistered speakers are `Unknown 0`,
        `Unknown 1`, … with the score -1.0. Call `warn` if samples of other models cannot be compared.

        Raises:
            DirectoryDown: the store of speakers does not answer.
            EngineAway: the speaker engine does not answer.
        """
        speakers = await self._store.enrolled(organization)
        # Without registered speakers, the engine is not called, so it need not exist.
        matches = [NO_MATCH] * len(voices) if not speakers else await self.matches(speakers, voices)
        model = await self._embedder.model() if speakers else None
        if model is not None and (outdated := sum(not speaker.is_compatible(model) for speaker in speakers)):
            warn(outdated_warning(outdated, len(speakers)))
        scores = [NO_SCORE if each.name is None else each.score for each in matches]
        return list(zip(names_of(matches, shown=True), scores, strict=True))

    async def matches(self, speakers: Sequence[EnrolledSpeaker], voices: Sequence[Floats]) -> list[Match]:
        """Return the match of each voice, float32[n] at 16 kHz; `NO_MATCH` for one that is not `long_enough`.

        Raises:
            EngineAway: the speaker engine does not answer.
        """
        embeddings = iter(await self._embedder.embed_all([voice for voice in voices if long_enough(voice)]))
        matches = []
        for voice in voices:
            if long_enough(voice):
                embedding = next(embeddings)
                threshold = self._embedder.threshold(embedding, len(speakers))
                matches.append(match(embedding, speakers, threshold))
            else:
                matches.append(NO_MATCH)
        return matches


def long_enough(voice: Floats) -> bool:
    return len(voice) >= MIN_VOICE_S * RATE
