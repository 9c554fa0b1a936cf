"""API10, unsafe consumption of APIs: engines that answer with anything at all.

Whatever an engine answers, the job ends, its other services are unaffected, and no part of the answer becomes an event,
a cue or a row by itself.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.attacks.owasp.conftest import Target
from tests.contract.jobs import Jobs
from tests.contract.speech import spoken
from tests.process import ask
from tests.stub_engines import CHAT, SPEECH, StubEngines

BOTH = {"sound_event_detection": True, "speech_analysis": True}
RUDE_TEXT = (
    "a\r\n\r\nevent: completed\ndata: {}\n\n00:00:00.000 --> 99:00:00.000\n<script>x</script>\x00\x1b[2J\u2028\ud7ff"
)


def transcription(**changes: Any) -> bytes:
    whole: dict[str, Any] = {"language": "en", "duration": 2.0, "text": "a b", "segments": [], "words": []}
    return json.dumps({**whole, **changes}).encode()


def words(*times: Any) -> list[dict[str, Any]]:
    return [{"word": "w", "start": start, "end": end} for start, end in times]


ANSWERS = {
    "nothing": b"",
    "HTML": b"<html>" * 1000,
    "20 MB": b'{"text": "' + b"a" * (20 << 20) + b'"}',
    "numbers that are none": b'{"text": "a", "duration": NaN, "words": [{"word": "a", "start": NaN, "end": Infinity}]}',
    "huge numbers": transcription(words=words((1e308, 1e308), (-1e308, 1e300))),
    "huge integers": b'{"text": "a", "words": [{"word": "a", "start": 1' + b"0" * 5000 + b', "end": 2}]}',
    "backwards": transcription(words=words((9, 1), (5, 3), (-7, -8))),
    "100,000 words": transcription(words=words(*[(0, 1)] * 100_000)),
    "rude text": transcription(text=RUDE_TEXT, words=[{"word": RUDE_TEXT, "start": 0, "end": 1}]),
}


@pytest.fixture
def answering(target: Target, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, bytes]]:
    """The engines' answers by path, which replace sensible ones."""
    chosen: dict[str, bytes] = {}
    sensible = StubEngines.answer

    def answer(self: StubEngines, path: str, body: bytes, headers: dict[str, str]) -> bytes:
        return chosen[path] if path in chosen else sensible(self, path, body, headers)

    monkeypatch.setattr(StubEngines, "answer", answer)
    yield chosen
    target.engines.heal()
    target.well()


@pytest.mark.parametrize("said", ANSWERS.values(), ids=ANSWERS)
def test_hostile_speech_engine_answers_are_contained(
    target: Target, jobs: Jobs, answering: dict[str, bytes], said: bytes
) -> None:
    answering[SPEECH] = said
    job = jobs.accepted(spoken(2), BOTH)
    result = jobs.completed(job)
    assert result["sound_event_detection"]["status"] == "success", "the other services are as they would be"
    events = [event for event, _, _ in jobs.events(job)]
    assert events.count("completed") == 1
    for form in ("vtt", "srt"):
        captions = ask("GET", f"{target.url}/api/v1/jobs/{job}/captions.{form}")
        assert captions.status_code == 200
        assert "99:00:00" not in "".join(line for line in captions.text.split("\n") if "-->" in line)
        assert "\x1b" not in captions.text or said is not ANSWERS["rude text"]


@pytest.mark.parametrize(
    "content",
    [
        "no JSON", "[]", '{"caption": 7}', '{"caption": ""}', json.dumps({"caption": "c" * 1_000_000}),
        json.dumps({"caption": RUDE_TEXT}), '{"contains_speech": "yes"}', "{" * 50_000,
    ],
)  # fmt: skip
def test_hostile_caption_engine_answers_are_contained(jobs: Jobs, answering: dict[str, bytes], content: str) -> None:
    message = {"role": "assistant", "content": content}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    answering[CHAT] = json.dumps({"id": "1", "model": "m" * 10_000, "choices": choices}).encode()
    job = jobs.accepted(spoken(2), {**BOTH, "audio_insights": True, "caption": True})
    result = jobs.completed(job)
    assert result["sound_event_detection"]["status"] == "success"
    assert [event for event, _, _ in jobs.events(job)].count("completed") == 1
