"""Chunk upload: numbers, bodies, limits, and repeats."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.contract.api import Api, b64, events, generic, silence, tone

MIB = 1024 * 1024
HALF = silence(0.5)


@pytest.mark.both_logs
def test_upload_returns_next_number_without_error_member(api: Api) -> None:
    session = api.create()
    for number in range(3):
        answer = api.put(session, number, HALF)
        assert answer.status_code == 200
        assert answer.json() == {"session_id": session, "chunk_sequence": number + 1}


@pytest.mark.both_logs
@pytest.mark.parametrize("number", [0, 2, 1000])
def test_out_of_sequence_chunk_is_rejected(api: Api, number: int) -> None:
    session = api.create()
    api.send(session, HALF)
    generic(api.put(session, number, tone(0.5)), 409)
    assert api.page(session)["refs"]["chunk_sequence"] == 1
    assert api.put(session, 1, HALF).json()["chunk_sequence"] == 2


@pytest.mark.parametrize("number", ["one", "1.0", "-1", "0x1", "1e0", "%20", "9" * 30])
def test_malformed_chunk_number_is_rejected(api: Api, number: str) -> None:
    generic(api.put(api.create(), number, HALF), 400, naming="chunk_sequence")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"[]", "body"),
        (b"{}", "data"),
        (b'{"data":null}', "data"),
        (b'{"data":"@@@@"}', "data"),
        (b'{"data":"QUJ"}', "data"),
        (b'{"data":"QUJD\xff"}', "body"),
    ],
)
def test_invalid_body_is_rejected_without_effect(api: Api, body: bytes, field: str) -> None:
    session = api.create()
    generic(api.http.put(f"/audio_sessions/{session}/chunks/0", content=body), 400, naming=field)
    assert api.page(session)["refs"]["chunk_sequence"] == 0


def test_unknown_body_members_are_ignored(api: Api) -> None:
    body = {"data": b64(HALF), "comment": [1, {"deep": None}]}
    assert api.http.put(f"/audio_sessions/{api.create()}/chunks/0", json=body).status_code == 200


@pytest.mark.both_logs
def test_chunk_limit_is_exactly_one_mebibyte(api: Api) -> None:
    session = api.create("file")
    generic(api.put(session, 0, bytes(MIB + 1)), 413)
    assert api.page(session)["refs"]["chunk_sequence"] == 0
    assert api.put(session, 0, bytes(MIB)).status_code == 200


@pytest.mark.both_logs
def test_one_of_sixteen_concurrent_uploads_wins(api: Api) -> None:
    session = api.create()
    api.send(session, HALF)
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: api.put(session, 1, HALF), range(16)))
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 15
    assert api.page(session)["refs"]["chunk_sequence"] == 2


@pytest.mark.both_logs
def test_repeat_with_same_idempotency_key_gets_first_answer(api: Api) -> None:
    session = api.create()
    first = api.put(session, 0, tone(0.5), Idempotency_Key="one")
    assert api.put(session, 1, HALF).status_code == 200
    again = api.put(session, 0, tone(0.5), Idempotency_Key="one")
    assert (again.status_code, again.json()) == (200, first.json())
    assert api.page(session)["refs"]["chunk_sequence"] == 2


@pytest.mark.both_logs
def test_repeat_without_key_or_with_other_bytes_conflicts(api: Api) -> None:
    session = api.create()
    assert api.put(session, 0, HALF, Idempotency_Key="one").status_code == 200
    generic(api.put(session, 0, HALF), 409)
    generic(api.put(session, 0, HALF, Idempotency_Key="two"), 409)
    generic(api.put(session, 0, tone(0.5), Idempotency_Key="one"), 409)


@pytest.mark.both_logs
def test_repeat_is_answered_after_session_closed(api: Api) -> None:
    session = api.create("file", total_size=len(HALF))
    first = api.put(session, 0, HALF, Idempotency_Key="last")
    again = api.put(session, 0, HALF, Idempotency_Key="last")
    assert (again.status_code, again.json()) == (200, first.json())


def test_idempotency_key_length_is_limited(api: Api) -> None:
    session = api.create()
    generic(api.put(session, 0, HALF, Idempotency_Key="k" * 256), 400, naming="Idempotency-Key")
    assert api.put(session, 0, HALF, Idempotency_Key="k" * 255).status_code == 200


@pytest.mark.both_logs
def test_both_paths_serve_same_session(api: Api, sense: Api) -> None:
    session = sense.create()
    assert api.put(session, 0, tone(1)).status_code == 200
    assert sense.put(session, 1, tone(1)).status_code == 200
    assert len(events([api.page(session)])) == 1
