"""The load generator's own parts: requests, answers cut anywhere, audio, processes."""

from __future__ import annotations

import asyncio
import re

import msgspec
import orjson
import pybase64
import pytest

from benchmarks import audio, profile
from benchmarks.client import LoadError, extract
from benchmarks.plans import AnyPlan, LivePlan, Target, UploadPlan
from benchmarks.wire import HttpConnection, request

ANSWER = b'HTTP/1.1 200 OK\r\ndate: x\r\nContent-Length: 7\r\n\r\n{"a":1}'


def fed(pieces: list[bytes]) -> tuple[int, bytes] | None:
    async def scene() -> tuple[int, bytes] | None:
        connection = HttpConnection()
        connection._answer = asyncio.get_running_loop().create_future()
        for piece in pieces:
            connection.data_received(piece)
        return connection._answer.result() if connection._answer.done() else None

    return asyncio.run(scene())


@pytest.mark.parametrize("cut", range(1, len(ANSWER)))
def test_an_answer_may_arrive_in_any_two_pieces(cut: int) -> None:
    assert fed([ANSWER[:cut], ANSWER[cut:]]) == (200, b'{"a":1}')
    assert fed([ANSWER[:cut]]) is None


def test_an_answer_without_a_body() -> None:
    assert fed([b"HTTP/1.1 204 No Content\r\ndate: x\r\n\r\n"]) == (204, b"")


def test_a_request_names_the_length_of_its_body() -> None:
    head = request("PUT", "/x", 12, "X-Api-Key: k\r\n")
    assert head.startswith(b"PUT /x HTTP/1.1\r\nHost: ")
    assert b"\r\nX-Api-Key: k\r\n" in head
    assert head.endswith(b"\r\nContent-Length: 12\r\n\r\n")
    assert b"Content-Length" not in request("GET", "/x")


def test_audio_is_the_same_every_time_and_differs_by_stream() -> None:
    assert audio.chunk(1, 2) == audio.chunk(1, 2 + audio.DISTINCT)
    assert len({audio.chunk(stream, number) for stream in range(2) for number in range(audio.DISTINCT)}) == 8
    assert pybase64.b64decode(orjson.loads(audio.body(3, 1))["data"]) == audio.chunk(3, 1)


@pytest.mark.parametrize("plan", [LivePlan(Target(1, (2,)), 3, 4), UploadPlan(Target(1, (2, 3), (4,), "k"), 5, 6)])
def test_a_plan_survives_the_way_to_the_load_process(plan: AnyPlan) -> None:
    assert msgspec.json.decode(msgspec.json.encode(plan), type=AnyPlan) == plan


def test_an_answer_without_what_is_looked_for_is_an_error() -> None:
    with pytest.raises(LoadError, match="is not in b'nothing'"):
        extract(re.compile(rb'"count":([0-9]+)'), b"nothing")


def test_a_threads_cpu_is_divided_by_its_samples() -> None:
    text = """thread (7): main;x (uvicorn/x.py:2);audio_bytes (app/http/bodies.py:9);decode (y.py:3) 6
thread (7): main;x (uvicorn/x.py:2) 2
thread (8): inference;run (streams/models/sound_engine.py:4) 1
thread (8): inference;wait (concurrent/futures/thread.py:81) 100"""
    spent = profile.seconds(profile.collapsed(text), {7: 4.0, 8: 5.0, 9: 1.0})
    assert spent == {"JSON and base64": 3.0, "HTTP": 1.0, "model": 5.0, profile.OTHER_THREADS: 1.0}


def test_a_stack_of_a_room_that_no_pattern_names_is_its_own() -> None:
    ((stack, count),) = profile.collapsed('process 3:"python";thread (7): main;fold (streams/owner/x.py:9) 6')
    assert (stack[0], count) == ("thread (7): main", 6)
    assert profile.component(stack) == "streams/owner/"
