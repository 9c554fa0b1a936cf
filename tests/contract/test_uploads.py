"""Chunk upload: numbers, bodies, limits, and repeats."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.contract.api import Api, b64, events, generic, silence, tone

MIB = 1024 * 1024
HALF = silence(0.5)


@pytest.mark.both_logs
def test_an_upload_answers_the_next_number_and_no_error_member(api: Api) -> None:
    session = api.create()
    for number in range(3):
        answer = api.put(session, number, HALF)
        assert answer.status_code == 200
        assert answer.json() == {"session_id": session, "chunk_sequence": number + 1}


@pytest.mark.both_logs
@pytest.mark.parametrize("number", [0, 2, 1000])
def test_a_number_that_is_not_the_next_changes_nothing(api: Api, number: int) -> None:
    session = api.create()
    api.send(session, HALF)
    generic(api.put(session, number, tone(0.5)), 409)
    assert api.page(session)["refs"]["chunk_sequence"] == 1
    assert api.put(session, 1, HALF).json()["chunk_sequence"] == 2


@pytest.mark.parametrize("number", ["one", "1.0", "-1", "0x1", "1e0", "%20", "9" * 30])
def test_a_number_that_is_no_counter_is_refused(api: Api, number: str) -> None:
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
def test_a_faulty_body_is_refused_and_changes_nothing(api: Api, body: bytes, field: str) -> None:
    session = api.create()
    generic(api.http.put(f"/audio_sessions/{session}/chunks/0", content=body), 400, naming=field)
    assert api.page(session)["refs"]["chunk_sequence"] == 0


def test_unknown_members_of_a_body_are_ignored(api: Api) -> None:
    body = {"data": b64(HALF), "comment": [1, {"deep": None}]}
    assert api.http.put(f"/audio_sessions/{api.create()}/chunks/0", json=body).status_code == 200


@pytest.mark.both_logs
def test_exactly_one_mebibyte_is_taken_and_one_byte_more_is_not(api: Api) -> None:
    session = api.create("file")
    generic(api.put(session, 0, bytes(MIB + 1)), 413)
    assert api.page(session)["refs"]["chunk_sequence"] == 0
    assert api.put(session, 0, bytes(MIB)).status_code == 200


@pytest.mark.both_logs
def test_one_of_sixteen_uploads_of_a_number_wins(api: Api) -> None:
    session = api.create()
    api.send(session, HALF)
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: api.put(session, 1, HALF), range(16)))
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 15
    assert api.page(session)["refs"]["chunk_sequence"] == 2


@pytest.mark.both_logs
def test_a_repeat_with_the_same_idempotency_key_gets_the_first_answer(api: Api) -> None:
    session = api.create()
    first = api.put(session, 0, tone(0.5), Idempotency_Key="one")
    assert api.put(session, 1, HALF).status_code == 200
    again = api.put(session, 0, tone(0.5), Idempotency_Key="one")
    assert (again.status_code, again.json()) == (200, first.json())
    assert api.page(session)["refs"]["chunk_sequence"] == 2


@pytest.mark.both_logs
def test_a_repeat_is_a_conflict_without_the_key_or_with_other_bytes(api: Api) -> None:
    session = api.create()
    assert api.put(session, 0, HALF, Idempotency_Key="one").status_code == 200
    generic(api.put(session, 0, HALF), 409)
    generic(api.put(session, 0, HALF, Idempotency_Key="two"), 409)
    generic(api.put(session, 0, tone(0.5), Idempotency_Key="one"), 409)


@pytest.mark.both_logs
def test_a_repeat_is_answered_after_the_session_closed(api: Api) -> None:
    session = api.create("file", total_size=len(HALF))
    first = api.put(session, 0, HALF, Idempotency_Key="last")
    again = api.put(session, 0, HALF, Idempotency_Key="last")
    assert (again.status_code, again.json()) == (200, first.json())


def test_an_idempotency_key_has_a_length(api: Api) -> None:
    session = api.create()
    generic(api.put(session, 0, HALF, Idempotency_Key="k" * 256), 400, naming="Idempotency-Key")
    assert api.put(session, 0, HALF, Idempotency_Key="k" * 255).status_code == 200


@pytest.mark.both_logs
def test_both_places_serve_one_session(api: Api, sense: Api) -> None:
    session = sense.create()
    assert api.put(session, 0, tone(1)).status_code == 200
    assert sense.put(session, 1, tone(1)).status_code == 200
    assert len(events([api.page(session)])) == 1
