"""Well-formed and malformed forms: each gets a clear answer and leaves nothing behind."""

import weakref
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from app.http.multipart import Form
from tests.garbage import uncollected
from tests.unit.app.conftest import KEY, OPTIONS, Exchange, House, client_of
from tests.unit.app.speakers.conftest import EDGE, END, FORM, part
from tests.waiting import until
from topics.errors import BadRequest

SOUND = b'{"sound_event_detection": true, "audio_insights_prompt": null}'
AUDIO = b"RIFF\r\n--boundary_1700000000.5_12345\r\n\r\n--" + bytes(range(256))


OPTIONS_PART = part('name="options";', SOUND)
AUDIO_PART = part('name="audio"; filename="Hund im Büro.wav"', AUDIO, "audio/x-wav")


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(msgspec.structs.replace(OPTIONS, spool=tmp_path, upload_limit=256 * 1024, upload_idle_seconds=0.05))


@pytest.fixture
def http(house: House) -> Iterator[TestClient]:
    with client_of(house, x_api_key=KEY, content_type=FORM) as client:
        yield client


def sent(http: TestClient, *parts: bytes, kind: str = FORM) -> Any:
    return http.post("/api/v1/analyze_file", content=b"".join(parts), headers={"Content-Type": kind})


@pytest.mark.parametrize("parts", [(OPTIONS_PART, AUDIO_PART), (AUDIO_PART, OPTIONS_PART)])
def test_parts_are_accepted_in_either_order(house: House, http: TestClient, parts: tuple[bytes, ...]) -> None:
    """As the vendor's client writes them: the odd header of `options`, the filename in UTF-8, and a line in the audio
    that resembles the boundary."""
    assert sent(http, *parts, END).status_code == 200
    (job,) = house.jobs.jobs.values()
    assert job.accepted is not None
    assert b"".join(job.parts.values()) == AUDIO
    source = job.accepted.source
    assert (source.filename, source.declared) == ("Hund im Büro.wav", "audio/x-wav")
    assert job.accepted.options.sound_event_detection


def test_raw_format_is_read_from_part_content_type(house: House, http: TestClient) -> None:
    audio = part('name="audio"', bytes(64), "audio/x-raw; rate=8000; format=s16")
    assert sent(http, OPTIONS_PART, audio, END).status_code == 200
    assert house.prober.asked[0] is not None
    assert house.prober.asked[0].rate == 8000
    audio = part('name="audio"', bytes(64), "audio/x-raw; format=s16")
    answer = sent(http, OPTIONS_PART, audio, END)
    assert answer.status_code == 400
    assert "rate" in answer.json()["error"]


def test_other_parts_and_epilogue_are_ignored(http: TestClient) -> None:
    other = part('name="samplerate"', b"16000") + part('name="file"; filename="x"', b"x" * 9)
    assert sent(http, b"\r\n", other, OPTIONS_PART, AUDIO_PART, END, b"epilogue").status_code == 200


@pytest.mark.parametrize("preamble", [b"This is a message with parts.\r\n", b"--boundary\r\n" * 99, b"\r\n", b"\n"])
def test_preamble_is_ignored(http: TestClient, preamble: bytes) -> None:
    assert sent(http, preamble, OPTIONS_PART, AUDIO_PART, END).status_code == 200


@pytest.mark.parametrize(
    ("parameter", "name"),
    [
        ('filename="a%22b%0D%0Ac%20d.wav"', 'a"b\r\nc%20d.wav'),
        ('filename="a%0ab.wav"', "a\nb.wav"),
        (r'filename="a\"b\\c.wav"', 'a"b\\c.wav'),
        ("filename*=UTF-8''M%C3%BCller%22.wav", 'Müller".wav'),
        ("filename*=utf-8'de'%e2%82%ac.wav; filename=\"EUR.wav\"", "€.wav"),
        ("filename=\"x.wav\"; filename*=ISO-8859-1''M%FCller.wav", "Müller.wav"),
        ("filename=\"x.wav\"; filename*=klingon''M%FCller.wav", "x.wav"),
        ("filename=\"x; filename*=UTF-8''y\"", "x; filename*=UTF-8''y"),
        ("filename*=UTF-8''" + "%41" * 300, "A" * 255),
    ],
)
def test_names_of_files_are_read_as_clients_write_them(
    house: House, http: TestClient, parameter: str, name: str
) -> None:
    assert sent(http, OPTIONS_PART, part(f'name="audio"; {parameter}', AUDIO), END).status_code == 200
    (job,) = house.jobs.jobs.values()
    assert job.accepted is not None
    assert job.accepted.source.filename == name


FAULTS = {
    "long preamble": ((bytes(70_000) + b"\r\n", OPTIONS_PART, AUDIO_PART, END), 400, "65536 bytes have no boundary"),
    "options twice": ((OPTIONS_PART, OPTIONS_PART, AUDIO_PART, END), 400, "options appears twice"),
    "audio twice": ((OPTIONS_PART, AUDIO_PART, AUDIO_PART, END), 400, "audio appears twice"),
    "no end": ((OPTIONS_PART, AUDIO_PART), 400, "ends before its last boundary"),
    "cut in a header": ((OPTIONS_PART, AUDIO_PART[:50]), 400, "ends before its last boundary"),
    "empty": ((), 400, "ends before its last boundary"),
    "garbage": ((b"no form at all",), 400, "not a multipart form"),
    "another boundary": ((OPTIONS_PART.replace(b"1700", b"1800"),), 400, "not a multipart form"),
    "long header": ((part("x" * 5000, b""), END), 400, "not a multipart form"),
    "many headers": ((EDGE + b"\r\n" + b"a: b\r\n" * 20 + b"\r\n\r\n", END), 400, "not a multipart form"),
    "many parts": ((part('name="x"', b"") * 99 + OPTIONS_PART + AUDIO_PART, END), 400, "more than 100 parts"),
    "too long": ((OPTIONS_PART, part('name="audio"', bytes(256 * 1024)), END), 413, "longer than"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_malformed_forms_are_rejected(house: House, http: TestClient, fault: str) -> None:
    parts, status, message = FAULTS[fault]
    answer = sent(http, *parts)
    assert answer.status_code == status
    assert message in answer.json()["error"]
    assert house.jobs.appended == []


@pytest.mark.parametrize(
    "kind", ["application/json", "multipart/form-data", "multipart/form-data; boundary=", "multipart/mixed; boundary=x"]
)
def test_other_content_types_are_rejected(http: TestClient, kind: str) -> None:
    answer = sent(http, OPTIONS_PART, AUDIO_PART, END, kind=kind)
    assert answer.status_code == 400
    assert "multipart/form-data" in answer.json()["error"]


def test_too_long_boundary_is_rejected(http: TestClient) -> None:
    assert sent(http, END, kind=f"multipart/form-data; boundary={'x' * 300}").status_code == 400


INVALID = {
    "no audio": ((OPTIONS_PART, END), "missing", ["audio"]),
    "no options": ((AUDIO_PART, END), "missing", ["options"]),
    "a list": ((part('name="options"', b"[]"), AUDIO_PART, END), "model_type", ["options"]),
    "not JSON": ((part('name="options"', b"{'a': 1}"), AUDIO_PART, END), "json_invalid", ["options"]),
    "no text": ((part('name="options"', b""), AUDIO_PART, END), "json_invalid", ["options"]),
    "unknown and not JSON": ((part('name="options"', b'{"x": NaN}'), AUDIO_PART, END), "json_invalid", ["options"]),
    "unknown": ((part('name="options"', b'{"x": 1}'), AUDIO_PART, END), "extra_forbidden", ["options", "x"]),
    "long": ((part('name="options"', b" " * 65_537), AUDIO_PART, END), "too_long", ["options"]),
}


@pytest.mark.parametrize("fault", INVALID)
def test_invalid_parts_return_422(house: House, http: TestClient, fault: str) -> None:
    parts, kind, place = INVALID[fault]
    answer = sent(http, *parts)
    assert answer.status_code == 422
    assert [(detail["type"], detail["loc"]) for detail in answer.json()["details"]] == [(kind, ["body", *place])]
    assert house.jobs.appended == []


def upload(house: House, *pieces: bytes) -> Exchange:
    """Begin a request whose body arrives in these pieces and then stops."""
    path, headers = "/api/v1/analyze_file", {"x-api-key": KEY, "content-type": FORM}
    return Exchange(house, path, "POST", pieces, **headers)


async def test_stalled_upload_returns_408(house: House) -> None:
    answer = await upload(house, OPTIONS_PART, AUDIO_PART).end()
    assert (answer.status, list(answer.json)) == (408, ["error"])
    assert answer.headers["connection"] == "close", "what is left of the body may never come"
    assert house.jobs.appended == []


async def test_shutdown_returns_503_to_uploading_client(tmp_path: Path) -> None:
    house = House(msgspec.structs.replace(OPTIONS, spool=tmp_path))
    answer = upload(house, OPTIONS_PART)
    await until(lambda: answer.waiting)
    answer.task.cancel()
    await answer.end()
    assert (answer.status, answer.json) == (503, {"error": "the service stops"})
    assert answer.headers["x-should-retry"] == "false"
    assert "retry-after" in answer.headers


async def test_slow_upload_returns_408(house: House) -> None:
    """A trickling body does not keep the request open forever."""
    house = House(msgspec.structs.replace(house.options, upload_slowest=1_000_000))
    answer = upload(house, *[b"\r\n"] * 1000)
    answer.pause = 0.001
    assert (await answer.end()).status == 408


async def test_disconnected_upload_leaves_nothing(house: House) -> None:
    answer = upload(house, OPTIONS_PART)
    await answer.leave()
    assert (answer.status, house.jobs.appended) == (0, [])


@settings(max_examples=60)
@given(st.lists(st.integers(0, len(OPTIONS_PART + AUDIO_PART + END)), max_size=12))
def test_parsing_does_not_depend_on_block_boundaries(cuts: list[int]) -> None:
    whole, audio = OPTIONS_PART + AUDIO_PART + END, bytearray()
    form = Form(FORM.encode(), "audio", audio.extend, text="options")
    places = [0, *sorted(cuts), len(whole)]
    for start, end in pairwise(places):
        form.feed(whole[start:end])
    assert (form.close(), bytes(audio)) == (SOUND, AUDIO)


def test_read_form_is_freed_at_once() -> None:
    with uncollected():
        form = Form(FORM.encode(), "audio", lambda data: None)
        form.feed(AUDIO_PART + END)
        form.close()
        freed = weakref.ref(form)
        del form
        assert freed() is None


def test_repeated_fields_are_all_kept() -> None:
    form = Form(FORM.encode(), "file", lambda data: None, fields=("name[]", "model"))
    parts = [
        part(f'name="{name}"', value.encode()) for name, value in (("name[]", "Ä"), ("name[]", ""), ("other", "x"))
    ]
    for byte in b"".join([*parts, END]):
        form.feed(bytes([byte]))
    form.close()
    assert (form.values("name[]"), form.values("model"), form.values("other")) == (["Ä", ""], [], [])


@pytest.mark.parametrize("second", ["name[]", "ignored"])
@pytest.mark.parametrize("first", ["name[]", "ignored"])
def test_fields_over_total_limit_are_rejected(first: str, second: str) -> None:
    form = Form(FORM.encode(), "file", lambda data: None, fields=("name[]",), unread=("references",))
    form.feed(part('name="references"', b"x" * 100_000))
    form.feed(part('name="a file of another name"; filename="x"', b"x" * 100_000))
    form.feed(part(f'name="{first}"', b"x" * 65_000))
    with pytest.raises(BadRequest, match="fields of the form are longer"):
        form.feed(part(f'name="{second}"', b"x" * 1000))
