"""Raw PCM is checked before it is acknowledged: a bad message or chunk is not stored, and its session goes on."""

from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from tests.contract.api import RATE, b64, tone, wav
from tests.unit.app.conftest import KEY, House
from tests.unit.app.sessions.sockets import END, greeted, of_type, opened, path_of, place, refused
from tests.waiting import until
from topics.sessions.records import Chunk

FLOATS = f"audio/x-raw; rate={RATE}; format=f32"
STEREO = f"audio/x-raw; rate={RATE}; format=s16; channels=2"
NAN = np.array([0.5, np.nan], "<f4").tobytes()
GOOD = np.array([0.5, -0.5], "<f4").tobytes()
OGG = b"OggS\0\x02" + bytes(100)


def chunks(house: House, session: str) -> list[bytes]:
    return list(house.sessions.sessions[session].chunks)


def make(http: TestClient, content_type: str, **fields: Any) -> str:
    body = {"type": "stream", "content_type": content_type, **fields}
    made = http.post("/audio_sessions/", json=body, headers={"X-Api-Key": KEY})
    return str(made.json()["session_id"])


def put(http: TestClient, session: str, number: int, data: bytes, **headers: str) -> tuple[int, str]:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = http.put(f"/audio_sessions/{session}/chunks/{number}", json={"data": b64(data)}, headers=sent)
    return answer.status_code, answer.json().get("error", "")


# --- sockets --------------------------------------------------------------------------------------------------------


async def test_sample_that_a_message_cuts_is_carried(house: House) -> None:
    """Every message is a chunk of its own, as it came."""
    cut = [tone(2)[:1], tone(2)[1:8001], tone(2)[8001:8002], tone(2)[8002:]]
    async with greeted(house) as (session, line):
        for message in cut:
            await line.socket.send(message)
        await line.socket.send(END)
        assert of_type(await line.rest(), "ack")[-1]["next_chunk"] == 4
        assert await line.code() == 1000
    assert chunks(house, session) == cut


async def test_greeting_tells_type_and_bytes_that_wait(house: House) -> None:
    session = await opened(house, content_type=STEREO)
    async with place(house) as here:
        for size, waits in ((4, 0), (7, 3), (2, 1), (3, 0)):
            async with here.line(path_of(session)) as line:
                hello = await line.next()
                assert (hello["content_type"], hello["next_chunk"]) == (STEREO, len(chunks(house, session)))
                await line.socket.send(bytes(size))
                await line.next_of("ack")
            async with here.line(path_of(session)) as line:
                assert (await line.next())["partial_bytes"] == waits
    encoded = await opened(house, content_type="audio/wav")
    await house.sessions.submit(encoded, Chunk("c", 0, wav(tone(0.5)) + b"\0"))
    async with place(house) as here, here.line(path_of(encoded)) as line:
        assert (await line.next())["partial_bytes"] == 0


@pytest.mark.parametrize(
    ("content_type", "before", "bad", "reason"),
    [
        (FLOATS, [GOOD], [NAN], "not all finite"),
        (FLOATS, [], [NAN[:6], NAN[6:]], "not all finite"),
        (FLOATS, [GOOD], [np.array([20_000], "<f4").tobytes()], "full scale is -1 to 1"),
        (STEREO, [], [wav(tone(1))], "the data is a WAV file: declare audio/wav"),
        (STEREO, [], [OGG[:3], OGG[3:]], "the data is an Ogg file: declare audio/ogg"),
    ],
    ids=["NaN", "cut NaN", "integers", "WAV", "cut Ogg"],
)
async def test_bad_message_is_refused_and_session_goes_on(
    house: House, content_type: str, before: list[bytes], bad: list[bytes], reason: str
) -> None:
    session = await opened(house, content_type=content_type)
    good = [*before, *bad[:-1]]
    async with place(house) as here:
        async with here.greeted(path_of(session)) as line:
            for message in good:
                await line.socket.send(message)
            await until(lambda: chunks(house, session) == good)
            await line.socket.send(bad[-1])
            assert reason in (await refused(line, 4400, 400))["error"]
        assert chunks(house, session) == good
        async with here.line(path_of(session)) as line:
            hello = await line.next()
            assert (hello["state"], hello["next_chunk"]) == ("writable", len(good))
            await line.socket.send(bytes(16 - hello["partial_bytes"]))
            assert (await line.next_of("ack"))["next_chunk"] == len(good) + 1


async def test_float_cut_by_a_break_is_checked(house: House) -> None:
    """The new connection knows how many bytes of the sample came before, and not which."""
    session = await opened(house, content_type=FLOATS)
    for first in (1, 2, 3):
        async with place(house) as here:
            async with here.greeted(path_of(session)) as line:
                await line.socket.send(NAN[4 : 4 + first])
                await line.next_of("ack")
            async with here.greeted(path_of(session)) as line:
                await line.socket.send(NAN[4 + first :])
                assert "float sample" in (await refused(line, 4400, 400))["error"]
            async with here.greeted(path_of(session)) as line:
                await line.socket.send(bytes(4 - first))
                await line.next_of("ack")


# --- requests -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content_type", "bad", "reason"),
    [
        (STEREO, bytes(4002), "its 4002 bytes are not a multiple of 4"),
        (STEREO, bytes(4001), "move its last 1 bytes to the beginning of the next chunk"),
        (FLOATS, NAN, "not all finite"),
        (FLOATS, np.array([1e5], "<f4").tobytes(), "a float sample is 100000, and full scale is -1 to 1"),
        (STEREO, wav(tone(1)), "the data is a WAV file: declare audio/wav"),
        (STEREO, b"ID3\x03\0\0\0\0\0\x0a" + bytes(90), "declare audio/mp3"),
    ],
)
def test_bad_chunk_is_refused_and_session_goes_on(
    http: TestClient, house: House, content_type: str, bad: bytes, reason: str
) -> None:
    session = make(http, content_type)
    status, error = put(http, session, 0, bad, idempotency_key="a")
    assert (status, reason in error) == (400, True), error
    assert chunks(house, session) == []
    assert put(http, session, 0, GOOD)[0] == 200
    assert put(http, session, 0, bad)[0] == 409, "a wrong number is told first"
    assert put(http, session, 1, GOOD)[0] == 200


def test_last_chunk_before_total_size_may_cut_a_sample(http: TestClient, house: House) -> None:
    session = make(http, STEREO, total_size=4001)
    assert put(http, session, 0, bytes(3999))[0] == 400
    assert put(http, session, 0, bytes(2000))[0] == 200
    assert put(http, session, 1, bytes(2001), idempotency_key="a")[0] == 200
    assert put(http, session, 1, bytes(2001), idempotency_key="a")[0] == 200, "repeated"
    assert put(http, session, 2, bytes(3))[0] == 403


def test_file_may_be_cut_anywhere(http: TestClient, house: House) -> None:
    session = make(http, STEREO, type="file")
    assert [put(http, session, number, bytes(size))[0] for number, size in enumerate((1, 3, 5))] == [200] * 3
    other = make(http, STEREO, type="file")
    assert put(http, other, 0, OGG)[0] == 400


async def test_request_completes_the_sample_of_a_socket(house: House, http: TestClient) -> None:
    async with greeted(house) as (session, line):
        await line.socket.send(bytes(3))
        await line.next_of("ack")
    status, error = put(http, session, 1, bytes(2))
    assert (status, "its 2 bytes and the 1 that wait before it" in error) == (400, True), error
    assert put(http, session, 1, bytes(3))[0] == 200


@pytest.mark.parametrize("bad", [bytes(7), NAN, wav(tone(1))], ids=["cut", "NaN", "WAV"])
def test_bad_window_is_refused_and_session_goes_on(http: TestClient, bad: bytes) -> None:
    session = make(http, FLOATS)

    def predict(data: bytes) -> int:
        return http.post(f"/audio_sessions/{session}/predict", json={"data": b64(data)}).status_code

    assert predict(bad) == 400
    assert put(http, session, 0, GOOD)[0] == 200, "nothing was stored, so the session takes chunks"
