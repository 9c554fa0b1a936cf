"""Translates the turns of a job's transcript, in batches that an engine can answer in time."""

from collections.abc import Iterator, Sequence
from typing import Final

from streams.clients.translations import TranslationClient
from streams.services.service import RunSummary, ServiceRun
from topics.errors import ServiceFault
from topics.jobs import payloads
from topics.jobs.options import ANY_LANGUAGE, Service

#: Characters translated in one call; most jobs have fewer.
BATCH_CHARACTERS: Final = 20_000


class TranslationService:
    """Runs `translation`. Loop only."""

    def __init__(self, engine: TranslationClient) -> None:
        self._engine = engine

    @property
    def limit(self) -> int:
        return self._engine.address.limit

    async def close(self) -> None:
        await self._engine.close()

    async def perform(self, run: ServiceRun) -> RunSummary:
        """Translate a job's transcript, one portion per call of the engine.

        Raises:
            ServiceFault: speech analysis or the engine failed.
            Unavailable: the log does not accept a portion.
        """
        portions, options = run.portions(Service.SPEECH), run.accepted.options
        if not portions:
            raise ServiceFault("speech_analysis failed: there is nothing to translate")
        source = "auto" if options.speech_lang == ANY_LANGUAGE else options.speech_lang
        target = options.translation_target_lang
        segments = [segment for portion in portions for segment in payloads.transcript(portion).segments]
        count = 0
        for number, batch in enumerate(batches([segment.text for segment in segments])):
            async with self._engine.slots:
                texts = await self._engine.translate(batch, source, target, f"{run.run}-{number}")
            count += len(texts)
            await run.emit(payloads.encode(payloads.Translated(target, texts)), count / len(segments))
        if not segments:
            # A successful service has at least one portion, even an empty one.
            await run.emit(payloads.encode(payloads.Translated(target, ())), 1.0)
        return RunSummary(self._engine.address.model or "default", run.audio_ms() if segments else 0)


def batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield the texts in order, in batches of at most `BATCH_CHARACTERS`; a longer text gets its own batch."""
    batch: list[str] = []
    characters = 0
    for text in texts:
        if batch and characters + len(text) > BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
        batch.append(text)
        characters += len(text)
    if batch:
        yield batch
