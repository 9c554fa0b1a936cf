"""Translation engines: LibreTranslate's `POST /translate` (https://docs.libretranslate.com)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

import msgspec

from streams.clients.client import EngineClient

#: Characters of all texts of one answer: what fits a record, and several times as many as are asked for at a time.
MAX_CHARACTERS: Final = 200_000


class Translations(msgspec.Struct, frozen=True, rename="camel"):
    """The answer to a list of texts."""

    translated_text: tuple[str, ...]


_decoder: Final = msgspec.json.Decoder(Translations)


class TranslationClient(EngineClient):
    """A server that translates."""

    path: ClassVar = "/translate"
    name: ClassVar = "translation"
    label: ClassVar = "Translation"

    async def translate(self, texts: Sequence[str], source: str, target: str, idempotency_key: str) -> tuple[str, ...]:
        """Return the translations in the order of the texts; `source` is a language code, or "auto".

        Raises:
            ServiceFault: see `EngineClient.post`; or the answer is no translation, not one of each text, or absurdly
                long.
        """
        request: dict[str, object] = {"q": texts, "source": source, "target": target, "format": "text"}
        if self.address.key is not None:
            request["api_key"] = self.address.key
        found = self.decoded(_decoder, await self.post(idempotency_key, json=request)).translated_text
        if len(found) != len(texts):
            raise self.unusable(f"{len(found)} translations of {len(texts)} texts")
        if sum(map(len, found)) > MAX_CHARACTERS:
            raise self.unusable("it is too long for the texts that were sent")
        return found
