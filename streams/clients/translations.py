"""Translation engines: LibreTranslate's `POST /translate` (https://docs.libretranslate.com)."""

from collections.abc import Sequence
from typing import ClassVar, Final

import msgspec

from streams.clients.client import EngineClient

#: Limit on the characters of an answer: fits a record, and is several times the size of a request.
MAX_CHARACTERS: Final = 200_000


class Translations(msgspec.Struct, frozen=True, rename="camel"):
    """The answer to a list of texts."""

    translated_text: tuple[str, ...]


_decoder: Final = msgspec.json.Decoder(Translations)


class TranslationClient(EngineClient):
    """Calls a server that translates text. Loop only."""

    path: ClassVar = "/translate"
    name: ClassVar = "translation"
    label: ClassVar = "Translation"

    async def translate(self, texts: Sequence[str], source: str, target: str, idempotency_key: str) -> tuple[str, ...]:
        """Return the translations in the order of the texts; `source` is a language code, or "auto".

        Raises:
            ServiceFault: as in `post`, or the answer lacks translations or is absurdly long.
        """
        request: dict[str, object] = {"q": texts, "source": source, "target": target, "format": "text"}
        if self.address.key is not None:
            request["api_key"] = self.address.key
        answer = self.decode(_decoder, await self.post(idempotency_key, json=request))
        translations = answer.translated_text
        if len(translations) != len(texts):
            raise self.unusable_answer(f"{len(translations)} translations of {len(texts)} texts")
        if sum(map(len, translations)) > MAX_CHARACTERS:
            raise self.unusable_answer("it is too long for the texts that were sent")
        return translations
