"""Language models: OpenAI's `POST /v1/chat/completions` with a JSON schema for the answer.

Protocol: https://platform.openai.com/docs/guides/structured-outputs. A server that ignores the schema works if its
model follows the instructions.
"""

from collections.abc import Mapping
from typing import ClassVar, Final

import msgspec

from streams.clients.client import EngineClient

#: Characters to keep of a model's name, because it goes into records and rows.
MAX_NAME_CHARACTERS: Final = 128


class ChoiceMessage(msgspec.Struct, frozen=True):
    """The content of an answer, None if the model refused."""

    content: str | None = None


class Choice(msgspec.Struct, frozen=True):
    """One of the answers; requests ask for one."""

    message: ChoiceMessage
    finish_reason: str | None = None


class Completion(msgspec.Struct, frozen=True):
    """The body of the answer."""

    choices: tuple[Choice, ...]
    model: str | None = None


class ChatAnswer(msgspec.Struct, frozen=True):
    """The model's text and name; `default` if the name is unknown."""

    text: str
    model: str


_decoder: Final = msgspec.json.Decoder(Completion)


class ChatClient(EngineClient):
    """Calls a server that completes conversations with a language model. Loop only."""

    path: ClassVar = "/v1/chat/completions"
    name: ClassVar = "caption"
    label: ClassVar = "Caption"

    async def complete(
        self, system: str, user: str, name: str, schema: Mapping[str, object], idempotency_key: str
    ) -> ChatAnswer:
        """Return the model's answer to the message `user`; `name` is the name of `schema` (JSON Schema).

        Raises:
            ServiceFault: as in `post`, or the answer is no completion, incomplete or too large.
        """
        request: dict[str, object] = {
            "messages": [{"role": "system", "content": system}, {"role": "user", "content": user}],
            "temperature": 0,
            "response_format": {"type": "json_schema", "json_schema": {"name": name, "strict": True, "schema": schema}},
        }
        if self.address.model is not None:
            request["model"] = self.address.model
        completion = self.decode(_decoder, await self.post(idempotency_key, json=request))
        if not completion.choices or not completion.choices[0].message.content:
            raise self.unusable_answer("it holds no text")
        if completion.choices[0].finish_reason == "length":
            raise self.unusable_answer("its text was cut at the engine's own limit")
        return ChatAnswer(
            completion.choices[0].message.content,
            self.address.model or (completion.model or "default")[:MAX_NAME_CHARACTERS],
        )
