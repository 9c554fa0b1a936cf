"""Session creation: the key first, then every field of the body."""

import gzip
from typing import Any

import pytest

from tests.contract.api import RAW, Api, generic
from tests.process import ADMIN_KEY, KEY, ORG_KEY
from topics import apikeys
from topics.apikeys import KeyKind


def test_create_returns_refs_and_window_geometry(api: Api, sense: Api) -> None:
    first, second = (driver.post({"type": "stream", "content_type": RAW}) for driver in (api, sense))
    for answer in (first, second):
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json"
        assert answer.json()["chunk_sequence"] == 0
    assert (first.json()["window_size"], first.json()["window_hop"]) == (1, 0.5)
    # A Go client decodes these into int fields, so whole seconds have no decimal point.
    assert '"window_size":2,"window_hop":1}' in second.text
    assert first.json().keys() == {"session_id", "chunk_sequence", "window_size", "window_hop"}
    assert first.json()["session_id"] != second.json()["session_id"]
    assert len(first.json()["session_id"]) >= 22


@pytest.mark.parametrize(("wanted", "hop"), [("0.5s", 0.5), ("1s", 1)])
def test_window_hop_applies_at_both_paths(api: Api, sense: Api, wanted: str, hop: float) -> None:
    for driver, size in ((api, 1), (sense, 2)):
        answer = driver.post({"type": "file", "content_type": RAW, "window_hop": wanted}).json()
        assert (answer["window_size"], answer["window_hop"]) == (size, hop)


def test_create_works_without_trailing_slash(api: Api) -> None:
    body = {"type": "stream", "content_type": RAW}
    for sent, status in ((body, 200), ({}, 400)):
        assert api.http.post("/audio_sessions", json=sent, headers={"x-api-key": api.key}).status_code == status


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"type":"dance"}', b'{"type":"stream","content_type":"x"}'])
@pytest.mark.parametrize(
    ("headers", "wording"),
    [({}, "API key required"), ({"X-Api-Key": ""}, "API key required"), ({"X-Api-Key": "x" * 30}, "Invalid API key")],
)
def test_invalid_key_is_reported_before_invalid_body(
    api: Api, body: bytes, headers: dict[str, str], wording: str
) -> None:
    answer = api.http.post("/audio_sessions/", content=body, headers=headers)
    generic(answer, 401)
    assert answer.json()["error"] == wording


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param([("X-Api-Key", KEY.upper())], id="another case"),
        pytest.param([("X-Api-Key", KEY[:-1])], id="cut"),
        pytest.param([("X-Api-Key", KEY + "0")], id="longer"),
        pytest.param([("X-Api-Key", apikeys.new(KeyKind.PROJECT))], id="well formed"),
        pytest.param([("X-Api-Key", apikeys.new(KeyKind.PROJECT)[:-1] + "!")], id="mistyped"),
        pytest.param([("X-Api-Key", ORG_KEY)], id="of an organization"),
        pytest.param([("X-Api-Key", ADMIN_KEY)], id="of the operator"),
        pytest.param([("X-Api-Key", apikeys.digest(KEY).hex())], id="its hash"),
        pytest.param([("X-Api-Key", "' OR 1=1 --")], id="SQL"),
        pytest.param([("X-Api-Key", "%")], id="wildcard"),
        pytest.param([("X-Api-Key", "k\u00fc\u00ff" * 20)], id="not ASCII"),
        pytest.param([("X-Api-Key", "k" * 8000)], id="very long"),
        pytest.param([("Authorization", f"Bearer {KEY}")], id="in another header"),
        pytest.param([("Cookie", f"X-Api-Key={KEY}")], id="in a cookie"),
        pytest.param([("X-Api-Key", "wrong"), ("X-Api-Key", "wrong too"), ("x_api_key", KEY)], id="two headers"),
    ],
)
def test_wrong_keys_are_rejected(api: Api, headers: list[tuple[str, str]]) -> None:
    """Neither the query nor the body can give the right one."""
    encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    named = dict.fromkeys(("key", "api_key", "X-Api-Key", "x-api-key"), KEY)
    body = {"type": "stream", "content_type": RAW, **named}
    for path in ("/audio_sessions/", "/sense/api/v1/audio_sessions/", "/api/v1/analyze", "/api/v1/analyze_file"):
        answer = api.http.post(path, json=body, params=named, headers=encoded)
        assert answer.status_code == 401, path
        assert KEY not in answer.text


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"content_type": None}, "content_type"),
        ({"content_type": 5}, "content_type"),
        ({"content_type": "video/x-flv"}, "content_type"),
        ({"content_type": "audio/x-raw; rate=0; format=s16le"}, "content_type"),
        ({"content_type": "audio/x-raw; rate=16000; format=s17le"}, "content_type"),
        ({"content_type": "audio/x-raw; format=s16le"}, "content_type"),
        ({"type": "radio"}, "type"),
        ({"type": 1}, "type"),
        ({"total_size": 0}, "total_size"),
        ({"total_size": -1}, "total_size"),
        ({"total_size": "10"}, "total_size"),
        ({"total_size": 1.5}, "total_size"),
        ({"total_size": True}, "total_size"),
        ({"default_sensitivity": 3}, "default_sensitivity"),
        ({"default_sensitivity": -3}, "default_sensitivity"),
        ({"default_sensitivity": 0.5}, "default_sensitivity"),
        ({"tags_sensitivity": []}, "tags_sensitivity"),
        ({"tags_sensitivity": {"No_such_tag": 1}}, "No_such_tag"),
        ({"tags_sensitivity": {"Dog_bark": 3}}, "tags_sensitivity"),
        ({"metadata": "note"}, "metadata"),
        ({"metadata": {"note": 1}}, "metadata"),
        ({"metadata": {"note": "x" * 5000}}, "metadata"),
        ({"metadatas": {"note": "x" * 5000}}, "metadatas"),
        ({"window_hop": "2s"}, "window_hop"),
        ({"file_name": 1}, "file_name"),
        ({"model": "no_such_model"}, "no_such_model"),
        ({"file_length": "1"}, "file_length"),
    ],
)
def test_invalid_field_is_named(api: Api, change: dict[str, Any], field: str) -> None:
    generic(api.post({"type": "stream", "content_type": RAW} | change), 400, naming=field)


@pytest.mark.parametrize("field", ["type", "content_type"])
def test_missing_field_is_named(api: Api, field: str) -> None:
    body = {"type": "stream", "content_type": RAW}
    del body[field]
    generic(api.post(body), 400, naming=field)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 10_000])
def test_non_object_body_is_rejected(api: Api, body: bytes) -> None:
    generic(api.http.post("/audio_sessions/", content=body, headers={"X-Api-Key": api.key}), 400, naming="body")


def test_compressed_body_is_rejected(api: Api) -> None:
    headers = {"X-Api-Key": api.key, "Content-Encoding": "gzip"}
    generic(api.http.post("/audio_sessions/", content=gzip.compress(bytes(50 << 20)), headers=headers), 415)


def test_oversized_creation_body_is_rejected(api: Api) -> None:
    generic(api.post({"type": "stream", "content_type": RAW, "metadata": {"note": "x" * 100_000}}), 413)


@pytest.mark.parametrize(
    "content_type",
    [
        "audio/wav",
        "audio/mp3",
        "audio/ogg",
        "audio/flac",
        "audio/aiff",
        "audio/wavex",
        "audio/x-raw; rate=44100; format=f32",
        "audio/x-raw;rate=8000;format=u24be;channels=2",
    ],
)
def test_every_documented_content_type_is_accepted(api: Api, content_type: str) -> None:
    api.create(content_type=content_type)
