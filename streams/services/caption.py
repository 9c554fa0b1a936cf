"""The caption of a job: one sentence about its sounds, written by a language model."""

from typing import Final

import msgspec

from streams.services.prompting import TEXT, ChatTask, PromptData, Text
from topics.jobs import payloads
from topics.jobs.options import Service

FIELDS: Final = {"caption": {**TEXT, "description": "one sentence that says what is heard"}}


class CaptionAnswer(msgspec.Struct, frozen=True):
    """The caption as the engine writes it."""

    caption: Text


_decoder: Final = msgspec.json.Decoder(CaptionAnswer)


def _read(text: str, data: PromptData) -> payloads.Caption:
    return payloads.Caption(" ".join(_decoder.decode(text).caption.split()))


CAPTION: Final = ChatTask(Service.CAPTION, FIELDS, _read)
