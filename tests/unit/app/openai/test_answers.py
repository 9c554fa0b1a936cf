"""Answers in every format, their jobs, and jobs whose client hangs up."""

from collections.abc import Sequence
from typing import Any

import pytest

from app.openai.formats import SpeakerLabels
from app.openai.requests import SpeechRequest, Task, read_fields
from tests.unit.app.conftest import KEY, House
from tests.unit.app.jobs.conftest import TURNS, Exchange, transcript
from tests.unit.app.openai.conftest import TRANSCRIPTIONS, TRANSLATIONS, WHISPER, Post, accepted, answered, form
from tests.unit.app.speakers.double import Registered
from tests.waiting import until
from topics.errors import AudioError, Unavailable
from topics.jobs.options import Options, Service
from topics.jobs.payloads import Segment, Word
from topics.ports.directory import Principal

TEXT = "Good morning. Guten Tag."
USAGE = {"type": "duration", "seconds": 12}
Fields = dict[str, str | Sequence[str]]


async def reply(house: House, fields: Fields, turns: Sequence[Segment] = TURNS, path: str = TRANSCRIPTIONS) -> Post:
    """Send a request, do its job, and return the exchange."""
    post = await answered(house, fields, turns, path)
    assert post.status == 200, post.body
    assert post.headers["earshot-job"] in house.jobs.jobs
    return post


def options(house: House) -> Options:
    (job,) = house.jobs.jobs.values()
    assert job.accepted is not None
    return job.accepted.options


async def test_default_format_is_json(house: House) -> None:
    assert (await reply(house, {})).json == {"text": TEXT, "usage": USAGE}
    assert options(house) == Options(speech_analysis=True, speaker_diarization=False)


def test_keywords_and_languages_become_options() -> None:
    def read(**fields: list[str]) -> SpeechRequest:
        return read_fields(Task.TRANSCRIBE, lambda name: fields.get(name.replace("[]", "s_"), []), {"base"})

    request = read(model=["whisper-1"], prompt=["A talk."], keywordss_=["Anna", "Kafka"], languagess_=["de"])
    assert (request.prompt, request.language, request.model) == ("A talk., Anna, Kafka", "de", None)
    request = read(model=["base"], languagess_=["de", "fr"])
    assert (request.prompt, request.language, request.model) == (None, None, "base")


@pytest.mark.parametrize(
    ("form", "begins"),
    [
        ("text", f"{TEXT}\n"),
        ("srt", "1\n00:00:04,600 --> 00:00:08,910\nGood morning.\n\n2\n"),
        ("vtt", "WEBVTT\n\n00:00:04.600 --> 00:00:08.910\nGood morning.\n\n"),
    ],
)
async def test_text_and_caption_formats_omit_speakers(house: House, form: str, begins: str) -> None:
    post = await reply(house, {"response_format": form})
    assert post.headers["content-type"] == "text/plain; charset=utf-8"
    assert post.body.decode().startswith(begins)


async def test_verbose_json_answer(house: House) -> None:
    content = (await reply(house, {"response_format": "verbose_json", "language": "DE", "temperature": "0.2"})).json
    segments = content.pop("segments")
    assert content == {"task": "transcribe", "language": "german", "duration": 11.6, "text": TEXT, "usage": USAGE}
    assert [(one["id"], one["start"], one["end"], one["text"]) for one in segments] == [
        (0, 4.6, 8.91, "Good morning."),
        (1, 9.0, 11.5, "Guten Tag."),
    ]
    assert segments[0]["temperature"] == 0.2
    assert segments[0]["compression_ratio"] > 0
    assert options(house).speech_lang == "DE"


@pytest.mark.parametrize("name", ["timestamp_granularities[]", "timestamp_granularities"])
async def test_words_have_timestamps(house: House, name: str) -> None:
    words = (Word(4600, 5000, "Good"), Word(5100, 5600, "morning."))
    turns = [Segment(4600, 8910, "Good morning.", words=words)]
    content = (await reply(house, {"response_format": "verbose_json", name: ["word"]}, turns)).json
    assert content["words"] == [
        {"word": "Good", "start": 4.6, "end": 5.0},
        {"word": "morning.", "start": 5.1, "end": 5.6},
    ]
    assert "segments" not in content
    assert options(house).word_times


async def test_unknown_speakers_get_letters_and_known_ones_names(house: House) -> None:
    house.speakers.organizations["organization"] = {"Anna_Kim": Registered(0), "Bert": Registered(0)}
    turns = (*TURNS, Segment(12_000, 12_500, "Ja.", 2, "Bert", 0.5))
    fields: Fields = {
        "response_format": "diarized_json",
        "known_speaker_names[]": ["Anna_Kim"],
        "known_speaker_references[]": ["data:audio/wav;base64," + "A" * 100_000],
        "chunking_strategy": "auto",
        "include[]": ["logprobs"],
    }
    content = (await reply(house, fields, turns)).json
    assert (content["task"], content["duration"], content["usage"]) == ("transcribe", 11.6, USAGE)
    # Bert is registered, but was not requested.
    assert [one["speaker"] for one in content["segments"]] == ["Anna_Kim", "A", "B"]
    assert content["segments"][0] == {
        "type": "transcript.text.segment",
        "id": "seg_0",
        "start": 4.6,
        "end": 8.91,
        "text": "Good morning.",
        "speaker": "Anna_Kim",
    }
    assert options(house) == Options(speech_analysis=True, speaker_diarization=True, speaker_profile=True)


def test_speaker_letters_continue_after_z() -> None:
    labels = SpeakerLabels(())
    found = [labels.label(Segment(0, 1, "", number)) for number in range(53)]
    assert (found[0], found[25], found[26], found[52]) == ("A", "Z", "AA", "BA")


async def test_translation_returns_english_text(house: House) -> None:
    content = (await reply(house, {"response_format": "verbose_json"}, path=TRANSLATIONS)).json
    assert (content["task"], content["language"]) == ("translate", "english")
    assert content["text"] == "In English: Good morning. In English: Guten Tag."
    assert (options(house).translation, options(house).translation_target_lang) == (True, "en")


@pytest.mark.parametrize("stream", ["false", "true"])
async def test_disconnect_removes_job(house: House, stream: str) -> None:
    post = Post(house, body=form({**WHISPER, "stream": stream}))
    job = await accepted(house)
    await until(lambda: house.jobs.followers[job])
    await post.leave()
    assert house.jobs.view(job) is None
    assert not house.jobs.followers[job]


async def test_translation_without_engine_returns_error(house: House) -> None:
    post = Post(house, TRANSLATIONS)
    job = await accepted(house)
    house.jobs.perform(job, Service.SPEECH, transcript(*TURNS))
    house.jobs.perform(job, Service.TRANSLATION, error="translation is not available in this deployment")
    await post.end()
    assert (post.status, "not available" in post.json["error"]["message"]) == (500, True)
    assert post.headers["earshot-job"] == job


async def test_removed_job_returns_404(house: House) -> None:
    post = Post(house)
    job = await accepted(house)
    removal = await Exchange(house, f"/api/v1/jobs/{job}", "DELETE", x_api_key=KEY).end()
    await post.end()
    assert (removal.status, post.status) == (204, 404)


DIARIZED = {"response_format": "diarized_json"}
#: Fields of a request, by the parameter that is wrong.
WRONG: dict[str, list[Fields]] = {
    "model": [{"model": ""}, {"model": "gpt-4o"}, {"model": ["whisper-1", "whisper-1"]}],
    "response_format": [{"response_format": "xml"}],
    "language": [{"language": "the one of my mother"}, {"language": "xx"}, {"languages[]": ["zz-top"]}],
    "temperature": [{"temperature": text} for text in ("hot", "1.5", "nan")],
    "stream": [{"stream": "perhaps"}],
    "timestamp_granularities": [{"timestamp_granularities[]": ["letter"]}],
    "known_speaker_names": [
        {**DIARIZED, "known_speaker_names[]": ["Nobody"]},
        {"known_speaker_names[]": ["Anna_Kim"]},
        {**DIARIZED, "known_speaker_names[]": [f"n{n}" for n in range(51)]},
    ],
    "": [{"prompt": "p" * 65_536}],
}


@pytest.mark.parametrize(("param", "fields"), [(param, one) for param, wrong in WRONG.items() for one in wrong])
async def test_invalid_fields_are_named(house: House, param: str, fields: Fields) -> None:
    status, code = (404, "model_not_found") if fields.get("model") == "gpt-4o" else (400, None)
    post = await Post(house, body=form({**WHISPER, **fields})).end()
    assert post.status == status, post.body
    error = post.json["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", param or None, code)
    assert error["message"]
    assert house.jobs.jobs == {}


async def test_diarized_translation_is_rejected(house: House) -> None:
    post = await Post(house, TRANSLATIONS, form({**WHISPER, "response_format": "diarized_json"})).end()
    assert (post.status, post.json["error"]["param"]) == (400, "response_format")
    post = await Post(house, TRANSLATIONS, form({"model": "gpt-4o"})).end()
    assert (post.status, post.json["error"]["code"]) == (404, "model_not_found")


async def refusal(house: House, body: bytes | None = None, path: str = TRANSCRIPTIONS, **headers: str) -> Post:
    post = await Post(house, path, body, **headers).end()
    assert post.headers["content-type"] == "application/json"
    return post


def kind(post: Post) -> tuple[int, Any, Any]:
    return post.status, post.json["error"]["type"], post.json["error"]["code"]


async def test_missing_form_file_or_audio_returns_400(house: House) -> None:
    assert kind(await refusal(house, b"{}", content_type="application/json"))[0] == 400
    post = await refusal(house, form(WHISPER, None))
    assert (post.status, post.json["error"]["param"]) == (400, "file")
    post = await refusal(house, form(WHISPER, b""))
    assert (post.status, post.json["error"]["param"]) == (400, "file")
    house.prober.failure = AudioError("it is a cake")
    post = await refusal(house)
    assert (post.status, post.json["error"]["param"]) == (400, "file")
    assert post.json["error"]["message"] == "the file cannot be read: it is a cake"


@pytest.mark.parametrize("path", [TRANSCRIPTIONS, TRANSLATIONS])
async def test_key_of_another_request_conflicts(house: House, path: str) -> None:
    first = Post(house, path, idempotency_key="mine")
    await accepted(house)
    assert kind(await refusal(house, form({**WHISPER, "prompt": "A talk."}), path, idempotency_key="mine"))[0] == 409
    await first.leave()


@pytest.mark.parametrize("path", [TRANSCRIPTIONS, TRANSLATIONS])
async def test_quota_and_queue_limits_return_errors(house: House, path: str) -> None:
    house.directory.keys = {KEY: Principal("project", "organization", 10)}
    house.directory.spent = {"project"}
    assert kind(await refusal(house, path=path)) == (402, "insufficient_quota", "insufficient_quota")
    house.directory.spent = set()
    house.jobs.failure = Unavailable("the queue is full", 7)
    post = await refusal(house, path=path)
    assert (kind(post), post.headers["retry-after"]) == ((503, "server_error", None), "7")


async def test_models_are_listed_and_unknown_paths_rejected(house: House) -> None:
    models = await Exchange(house, "/v1/models", authorization=f"Bearer {KEY}").end()
    assert b'"whisper-1"' in models.body
    for path, status in (("/v1/models", 401), ("/v1/chat/completions", 404), ("/v1/audio/transcriptions", 405)):
        other = await Exchange(house, path).end()
        assert (other.status, b'"error":{"message"' in other.body) == (status, True)
        assert (b'"code":"invalid_api_key"' in other.body) is (status == 401)


async def test_shutdown_returns_503(house: House) -> None:
    post = Post(house)
    job = await accepted(house)
    await until(lambda: bool(house.jobs.followers.get(job)))
    house.jobs.followers.wake(job, lost=True)
    await post.end()
    assert kind(post) == (503, "server_error", None)
