"""The caption of a job: one sentence about its sounds, written by a language model."""

from typing import Final

import msgspec

from streams.services.prompting import TEXT, ChatService, PromptData, Text
from streams.services.service import RunSummary, ServiceRun
from topics.jobs import payloads
from topics.jobs.options import Service

FIELDS: Final = {"caption": {**TEXT, "description": "one sentence that says what is heard"}}


class CaptionAnswer(msgspec.Struct, frozen=True):
    """The caption as the engine writes it."""

    caption: Text


_decoder: Final = msgspec.json.Decoder(CaptionAnswer)


class CaptionService(ChatService):
    """Runs `caption`. Loop only."""

    async def perform(self, run: ServiceRun) -> RunSummary:
        """Write a job's caption.

        Raises:
            ServiceFault: both services that it reads failed, or the engine did.
            ServiceError: the model that scored the sounds is unknown here.
        """
        caption, summary = await self.write(run, Service.CAPTION, FIELDS, _read)
        await run.emit(payloads.encode(caption), 1.0)
        return summary


def _read(text: str, data: PromptData) -> payloads.Caption:
    return payloads.Caption(" ".join(_decoder.decode(text).caption.split()))
