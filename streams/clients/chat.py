"""Caption engines: OpenAI's `POST /v1/chat/completions` with a JSON schema for the answer.

https://platform.openai.com/docs/guides/structured-outputs; servers that ignore the schema work as far as they follow
their instructions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

import msgspec

from streams.clients.client import EngineClient

#: Characters of a model's name that are kept: it goes into records and rows.
MAX_NAME_CHARACTERS: Final = 128


class ChoiceMessage(msgspec.Struct, frozen=True):
    """What the model wrote; None when it refused."""

    content: str | None = None


class Choice(msgspec.Struct, frozen=True):
    """One of the answers, of which one was asked for."""

    message: ChoiceMessage
    finish_reason: str | None = None


class Completion(msgspec.Struct, frozen=True):
    """The answer."""

    choices: tuple[Choice, ...]
    model: str | None = None


class ChatAnswer(msgspec.Struct, frozen=True):
    """What the model wrote, and its name where it is known."""

    text: str
    model: str


_decoder: Final = msgspec.json.Decoder(Completion)


class ChatClient(EngineClient):
    """A server that writes about what it is given."""

    path: ClassVar = "/v1/chat/completions"
    name: ClassVar = "caption"
    label: ClassVar = "Caption"

    async def write(
        self, system: str, user: str, name: str, schema: Mapping[str, object], idempotency_key: str
    ) -> ChatAnswer:
        """Return what the model answers to one message; `schema` (JSON Schema) is called `name`.

        Raises:
            ServiceFault: see `EngineClient.post`; or the answer is no completion, or not a whole one.
        """
        request: dict[str, object] = {
            "messages": [{"role": "system", "content": system}, {"role": "user", "content": user}],
            "temperature": 0,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": name, "strict": True, "schema": schema},
            },
        }
        if self.address.model is not None:
            request["model"] = self.address.model
        found = self.decoded(_decoder, await self.post(idempotency_key, json=request))
        if not found.choices or not found.choices[0].message.content:
            raise self.unusable("it holds no text")
        if found.choices[0].finish_reason == "length":
            raise self.unusable("its text was cut at the engine's own limit")
        return ChatAnswer(
            found.choices[0].message.content, self.address.model or (found.model or "default")[:MAX_NAME_CHARACTERS]
        )
