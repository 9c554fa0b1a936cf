"""Run by the interpreter of OpenAI's Python client: every kind of call on one file.

Arguments: base URL, key, audio file. Prints JSON.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

from openai import APIStatusError, OpenAI


def refused(call: Callable[..., object], **fields: Any) -> list[object] | None:
    try:
        call(**fields)
    except APIStatusError as error:
        return [type(error).__name__, error.status_code, error.code, error.param]
    return None


def calls(url: str, key: str, path: str) -> dict[str, Any]:
    client = OpenAI(base_url=f"{url}/v1", api_key=key)

    def transcribed(**fields: Any) -> Any:
        with open(path, "rb") as file:
            return client.audio.transcriptions.create(**{"file": file, "model": "whisper-1", **fields})

    def translated(**fields: Any) -> Any:
        with open(path, "rb") as file:
            return client.audio.translations.create(file=file, model="whisper-1", **fields)

    def plain(answer: Any) -> Any:
        return answer if isinstance(answer, str) else answer.model_dump(exclude_unset=True)

    every = transcribed(response_format="verbose_json", timestamp_granularities=["word", "segment"], temperature=0)
    diarized = transcribed(response_format="diarized_json", chunking_strategy="auto")
    other = OpenAI(base_url=f"{url}/v1", api_key="wrong", max_retries=0)
    with open(path, "rb") as file:
        wrong_key = refused(other.audio.transcriptions.create, file=file, model="whisper-1")
    return {
        "types": [type(every).__name__, type(every.words[0]).__name__, type(every.segments[0]).__name__],
        "diarized type": type(diarized).__name__,
        "json": plain(transcribed(languages=["en"], prompt="a question", keywords=["Kafka"])),
        "text": plain(transcribed(response_format="text")),
        "srt": plain(transcribed(response_format="srt")),
        "vtt": plain(transcribed(response_format="vtt")),
        "verbose_json": plain(every),
        "diarized_json": plain(diarized),
        "events": [plain(event) for event in transcribed(stream=True)],
        "speakers as events": [plain(event) for event in transcribed(stream=True, response_format="diarized_json")],
        "translation": plain(translated()),
        "verbose translation": plain(translated(response_format="verbose_json")),
        "models": [model.id for model in client.models.list()],
        "wrong key": wrong_key,
        "wrong model": refused(transcribed, model="gpt-9"),
        "wrong format": refused(transcribed, response_format="xml"),
        "unknown voice": refused(
            transcribed, response_format="diarized_json", extra_body={"known_speaker_names": ["Nobody"]}
        ),
        "no audio": refused(client.audio.transcriptions.create, file=("a.wav", b"no audio"), model="whisper-1"),
    }


print(json.dumps(calls(*sys.argv[1:])))
