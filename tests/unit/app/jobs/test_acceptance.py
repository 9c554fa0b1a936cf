"""Job requests: accepted jobs are on the log completely; refused ones leave nothing behind."""

import asyncio
import base64
import errno
import json
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest
from httpx2 import Response
from starlette.testclient import TestClient
from structlog.testing import capture_logs

from app.http.long_texts import PIECE
from app.http.upload_bounds import UploadBounds, UploadQuota
from app.http.uploads import UploadSpool
from tests.contract.jobs import ALL
from tests.unit.app.conftest import KEY, OPTIONS, Exchange, House, Running, client_of, service, serving
from tests.unit.app.double import BEGINNING, MODEL
from tests.waiting import until
from topics.errors import AudioError, AudioTooLong, Unavailable
from topics.jobs.options import Options
from topics.jobs.records import PART_BYTES, Accepted, Part, Source
from topics.media import Media
from topics.ports.directory import Principal
from topics.ports.prober import ProbeResult
from topics.turns import Holder

__all__ = ["service"]

SOUND = {"sound_event_detection": True}
AUDIO = b"RIFF of a kind"
FREE = "the key of a project with free seconds"


@pytest.fixture
def house(tmp_path: Path) -> House:
    """An edge with small limits that spools into a visible directory."""
    house = House(msgspec.structs.replace(OPTIONS, spool=tmp_path, analyze_limit=3 * PART_BYTES))
    house.directory.keys[FREE] = Principal("free", "organization", free_seconds=1200)
    return house


@pytest.fixture
def http(house: House, tmp_path: Path) -> Iterator[TestClient]:
    with client_of(house, x_api_key=KEY) as client:
        yield client
        assert left_open(tmp_path) == [], "a spool file is still open"


def left_open(directory: Path) -> list[str]:
    """Return the files of a directory that this process holds open, named or not."""
    links = []
    for name in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            continue
    return [link for link in links if link.startswith(str(directory))]


def body(audio: bytes = AUDIO, options: object = SOUND, **fields: object) -> dict[str, Any]:
    return {"samplerate": 16_000, "audio": base64.b64encode(audio).decode(), "options": options, **fields}


def sent(
    http: TestClient, audio: bytes = AUDIO, options: object = SOUND, key: str = "", project: str = KEY
) -> Response:
    files: dict[str, Any] = {"options": (None, json.dumps(options)), "audio": ("a.wav", audio, "audio/x-wav")}
    return http.post("/api/v1/analyze_file", files=files, headers={"Idempotency-Key": key, "X-Api-Key": project})


def only_job(house: House) -> tuple[Accepted, bytes]:
    (job,) = house.jobs.jobs.values()
    assert job.accepted is not None
    return job.accepted, b"".join(job.parts[number] for number in sorted(job.parts))


def test_accepted_job_is_appended_to_log(house: House, http: TestClient) -> None:
    answer = http.post("/api/v1/analyze", json=body(filename="dog.wav", other="ignored"))
    assert answer.status_code == 200
    (job,) = house.jobs.jobs
    # The acceptance is the second record.
    assert answer.json() == {"job_id": job, "status": "accepted", "created_at": "2026-01-02T03:04:05.680Z"}
    assert BEGINNING % 1000 == 678
    accepted, audio = only_job(house)
    assert audio == AUDIO
    assert accepted.options == Options(sound_event_detection=True)
    assert accepted.source == Source("audio/wav", "wav", len(AUDIO), 44_100, 2, "dog.wav", "")
    assert (accepted.project, accepted.organization) == ("project", "organization")
    assert accepted.model == MODEL
    counted = {"earshot_jobs_accepted_total 1.0", f"earshot_job_bytes_accepted_total {len(AUDIO)}.0"}
    assert counted <= set(http.get("/metrics").text.splitlines())


def test_long_audio_is_appended_in_parts(house: House, http: TestClient) -> None:
    audio = os.urandom(6 * PART_BYTES + 7)
    assert sent(http, audio).status_code == 200
    accepted, kept = only_job(house)
    assert kept == audio
    assert accepted.parts == 7
    sizes = [len(part.data) for part in house.jobs.appended if isinstance(part, Part)]
    assert sizes == [PART_BYTES] * 6 + [7]
    assert isinstance(house.jobs.appended[-1], Accepted)
    assert house.jobs.most_in_flight <= 4


def test_all_vendor_client_options_are_accepted(house: House, http: TestClient) -> None:
    assert sent(http, options=ALL).status_code == 200
    assert only_job(house)[0].options == Options(**ALL)


def test_only_allowed_speech_models_are_accepted() -> None:
    house = House(msgspec.structs.replace(OPTIONS, speech_models=frozenset({"small", "large"})))
    with client_of(house, x_api_key=KEY) as http:
        for model, status in ("large", 200), ("larger", 400), ("LARGE", 400), (None, 200):
            answer = sent(http, options={"speech_analysis": True, "speech_model": model})
            assert answer.status_code == status
            assert status == 200 or answer.json() == {"error": "speech_model is not available here"}


@pytest.mark.parametrize("name", ["audio", "audio_data", "data"])
def test_base64_in_lines_and_field_aliases(house: House, http: TestClient, name: str) -> None:
    audio = os.urandom(2 * PART_BYTES)
    request = body()
    del request["audio"]
    request[name] = base64.encodebytes(audio).decode()
    assert http.post("/api/v1/analyze", json=request).status_code == 200
    assert only_job(house)[1] == audio


def test_base64_padding_across_slices(house: House, http: TestClient) -> None:
    """The two padding characters are on both sides of the cut."""
    audio = os.urandom(PIECE // 4 * 3 - 2)
    request = body() | {"audio": "\n" + base64.b64encode(audio).decode() + "\n"}
    assert http.post("/api/v1/analyze", json=request).status_code == 200
    assert only_job(house)[1] == audio


@pytest.mark.parametrize(
    "text", [b"?", b"QUJ", b"QUJD" * 3 + b"Q", b"QQ==" + b"QUJD" * PART_BYTES, "QUJ\u00e9".encode(), b"\xff", b""]
)
def test_invalid_base64_returns_500(house: House, http: TestClient, text: bytes) -> None:
    content = json.dumps(body(audio=b"")).encode().replace(b'""', b'"%s"' % text)
    answer = http.post("/api/v1/analyze", content=content)
    assert (answer.status_code, answer.text) == (500, "Internal Server Error")
    assert answer.headers["earshot-reason"] == ("the audio is not base64" if text else "the data holds no audio")
    assert house.jobs.appended == []


@pytest.mark.parametrize("fault", [AudioError("it is noise"), AudioTooLong("the audio is longer than 86400 s")])
def test_unreadable_audio_returns_500_with_its_reason(house: House, http: TestClient, fault: AudioError) -> None:
    house.prober.failure = fault
    for answer in (sent(http), http.post("/api/v1/analyze", json=body())):
        assert (answer.status_code, answer.text) == (500, "Internal Server Error")
        assert answer.headers["earshot-reason"] == str(fault)
    assert house.jobs.appended == []


def test_raw_audio_uses_request_sample_rate(house: House, http: TestClient) -> None:
    request = body(content_type="audio/x-raw; format=s16le; channels=2", samplerate=8000.0)
    assert http.post("/api/v1/analyze", json=request).status_code == 200
    assert house.prober.asked == [Media("audio/x-raw", "raw", 8000, "s16le", 2)]
    request["content_type"] += "; rate=8000"
    assert http.post("/api/v1/analyze", json=request).status_code == 200
    assert house.prober.asked[1] == house.prober.asked[0]
    request["content_type"] = "audio/L16; channels=2"
    assert http.post("/api/v1/analyze", json=request).status_code == 200
    assert house.prober.asked[2] == Media("audio/x-raw", "raw", 8000, "s16be", 2)


@pytest.mark.parametrize(
    ("content_type", "reason"),
    [
        ("audio/x-raw; format=s16le; rate=11025", "samplerate is 16000, but content_type says rate=11025"),
        ("audio/klingon", "content_type: 'audio/klingon' is not supported; use audio/wav"),
        ("s16le", "content_type: 's16le' is not supported"),
    ],
)
def test_unusable_content_type_of_json_is_rejected(
    house: House, http: TestClient, content_type: str, reason: str
) -> None:
    answer = http.post("/api/v1/analyze", json=body(content_type=content_type, samplerate=16000))
    assert (answer.status_code, reason in answer.json()["error"]) == (400, True), answer.text
    assert house.jobs.appended == []


def test_other_types_are_detected_from_content(house: House, http: TestClient) -> None:
    assert http.post("/api/v1/analyze", json=body(content_type="video/mp4")).status_code == 200
    assert house.prober.asked == [None]


# --- order of checks ------------------------------------------------------------------------------------------------


WRONG = body(audio=b"", options={"no": 1}) | {"audio": "?"}


def test_checks_run_in_fixed_order(house: House, http: TestClient) -> None:
    """Each fault hides the later ones."""
    house.directory.spent.add("free")
    request = body(options={"caption": True, "no": 1}, samplerate=0) | {"audio": "?"}

    def status() -> int:
        return http.post("/api/v1/analyze", json=request, headers={"X-Api-Key": FREE}).status_code

    assert status() == 422
    request["options"] = {"caption": True}
    assert status() == 422
    request["samplerate"] = 1
    assert status() == 400
    request["options"] = SOUND
    assert status() == 500
    request["audio"] = "QUJD"
    house.prober.failure = AudioError("it is noise")
    assert status() == 500
    house.prober.failure = None
    assert status() == 402
    assert house.jobs.appended == []
    house.directory.spent = {"project"}
    assert status() == 200
    assert sent(http).status_code == 200, "no free_seconds: any amount"


MESSAGES = [
    ({}, "No services selected"),
    ({"translation": True}, "No services selected"),
    (
        {"audio_insights": True, "speech_analysis": True, "sound_event_detection": True},
        "audio_insights and caption must be both true or both false",
    ),
    (
        SOUND | {"audio_insights": True, "caption": True},
        "audio_insights requires both speech_analysis and sound_event_detection to be true",
    ),
    (
        {"audio_insights": True, "caption": True, "speech_analysis": True},
        "audio_insights requires both speech_analysis and sound_event_detection to be true",
    ),
    (
        {"caption": True, "speech_analysis": True, "sound_event_detection": True},
        "audio_insights and caption must be both true or both false",
    ),
    (SOUND | {"speaker_profile": True}, "speaker_profile requires speech_analysis: true"),
    (SOUND | {"translation": True}, "translation requires speech_analysis: true"),
    (SOUND | {"min_speakers": 2}, "min_speakers requires speaker_diarization: true"),
    (SOUND | {"max_speakers": 2}, "max_speakers requires speaker_diarization: true"),
    (
        {"speech_analysis": True, "speaker_diarization": False, "max_speakers": 2},
        "max_speakers requires speaker_diarization: true",
    ),
    (
        {"speech_analysis": True, "min_speakers": 3, "max_speakers": 2},
        "min_speakers must not be greater than max_speakers",
    ),
]


@pytest.mark.parametrize(("options", "message"), MESSAGES)
def test_conflicting_options_are_rejected(http: TestClient, options: dict[str, bool], message: str) -> None:
    for answer in (http.post("/api/v1/analyze", json=body(options=options)), sent(http, options=options)):
        assert (answer.status_code, answer.json()) == (400, {"error": message})


FAULTS: list[tuple[dict[str, object], list[tuple[str, list[str]]]]] = [
    ({"samplerate": 16_000.5}, [("int_type", ["samplerate"])]),
    ({"samplerate": "16000"}, [("int_type", ["samplerate"])]),
    ({"samplerate": True}, [("int_type", ["samplerate"])]),
    ({"samplerate": -1}, [("greater_than", ["samplerate"])]),
    ({"samplerate": 1e300}, [("less_than", ["samplerate"])]),
    ({"audio": 5, "samplerate": 0}, [("greater_than", ["samplerate"]), ("string_type", ["audio"])]),
    ({"options": []}, [("model_type", ["options"])]),
    ({"options": SOUND | {"no": 1}}, [("extra_forbidden", ["options", "no"])]),
    ({"options": SOUND | {"Caption": True}}, [("extra_forbidden", ["options", "Caption"])]),
    ({"options": {"caption": "yes"}}, [("bool_type", ["options", "caption"])]),
    ({"options": {"speech_lang": "e n"}}, [("string_pattern_mismatch", ["options", "speech_lang"])]),
    ({"options": {"speech_prompt": "x" * 1001}}, [("string_too_long", ["options", "speech_prompt"])]),
    ({"options": {"speech_lang": "en\n"}}, [("string_pattern_mismatch", ["options", "speech_lang"])]),
    (
        {"options": {"translation_target_lang": "x" * 17}},
        [("string_pattern_mismatch", ["options", "translation_target_lang"])],
    ),
    ({"options": {"audio_insights_prompt": "x" * 16_385}}, [("string_too_long", ["options", "audio_insights_prompt"])]),
    ({"options": {"min_speakers": 0}}, [("greater_than", ["options", "min_speakers"])]),
    ({"options": {"max_speakers": 33}}, [("less_than", ["options", "max_speakers"])]),
    ({"options": {"max_speakers": 1.5}}, [("int_type", ["options", "max_speakers"])]),
    ({"options": {"x" * 70_000: 1}}, [("too_long", ["options"])]),
    ({"content_type": 7}, [("string_type", ["content_type"])]),
    ({"filename": [[]] * 50_000}, [("too_long", ["filename"])]),
    ({"filename": "f" * 65_537}, [("too_long", ["filename"])]),
]


@pytest.mark.parametrize(("fields", "details"), FAULTS)
def test_invalid_fields_return_422(
    house: House, http: TestClient, fields: dict[str, object], details: list[tuple[str, list[str]]]
) -> None:
    answer = http.post("/api/v1/analyze", json=body() | fields)
    assert answer.status_code == 422
    told = answer.json()
    assert told["error"] == "Validation error"
    assert [(detail["type"], detail["loc"]) for detail in told["details"]] == [
        (kind, ["body", *place]) for kind, place in details
    ]
    assert all(detail["msg"] and "input" not in detail for detail in told["details"])
    assert house.jobs.appended == []


def test_missing_fields_are_reported(http: TestClient) -> None:
    with capture_logs() as lines:
        details = http.post("/api/v1/analyze", json={}).json()["details"]
    assert [(detail["type"], detail["loc"]) for detail in details] == [
        ("missing", ["body", name]) for name in ("samplerate", "audio", "options")
    ]
    assert lines[-1]["reason"] == "body.samplerate: missing"


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", "missing"),
        (b"{", "json_invalid"),
        (b"\xff\xfe", "json_invalid"),
        (b"[" * 100_000, "model_attributes_type"),
        (b"[]", "model_attributes_type"),
        (b'"text"', "model_attributes_type"),
    ],
)
def test_non_object_bodies_return_422(http: TestClient, content: bytes, kind: str) -> None:
    answer = http.post("/api/v1/analyze", content=content)
    assert answer.status_code == 422
    assert [detail["type"] for detail in answer.json()["details"]] == [kind]


@pytest.mark.parametrize("content", [b'{"x":' + b"[" * depth + b"]" * depth + b"}" for depth in (30_000, 100_000)])
def test_deeply_nested_bodies_return_422(http: TestClient, content: bytes) -> None:
    """From Python 3.14 on, the stack limits the depth, not a number."""
    answer = http.post("/api/v1/analyze", content=content)
    assert answer.status_code == 422
    assert {detail["type"] for detail in answer.json()["details"]} <= {"json_invalid", "missing"}


def test_quotes_do_not_count_towards_the_length_of_a_field(http: TestClient) -> None:
    assert http.post("/api/v1/analyze", json=body(filename="f" * 65_536)).status_code == 200


def test_number_of_reported_errors_is_limited(http: TestClient) -> None:
    answer = http.post("/api/v1/analyze", json=body(options={f"o{number}": 1 for number in range(1000)}))
    assert len(answer.json()["details"]) == 64


# --- limits and failures --------------------------------------------------------------------------------------------


def test_json_audio_over_limit_is_rejected(house: House, http: TestClient) -> None:
    assert http.post("/api/v1/analyze", json=body(bytes(3 * PART_BYTES))).status_code == 200
    answer = http.post("/api/v1/analyze", json=body(bytes(3 * PART_BYTES + 1)))
    assert (answer.status_code, list(answer.json())) == (413, ["error"])
    assert http.post("/api/v1/analyze", json=body(bytes(6 * PART_BYTES))).status_code == 413


def test_full_disk_returns_503(house: House, http: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UploadSpool, "write", mock.Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    for answer in (http.post("/api/v1/analyze", json=body()), sent(http)):
        assert answer.status_code == 503
        assert "retry-after" in answer.headers
        assert "space" not in answer.text
    assert house.jobs.appended == []


@pytest.mark.parametrize("size", [1, 6 * PART_BYTES])
def test_full_log_queue_returns_503(house: House, http: TestClient, size: int) -> None:
    house.jobs.failure = Unavailable("queues are full")
    answer = sent(http, bytes(size))
    assert (answer.status_code, answer.json()) == (503, {"error": "queues are full"})
    assert house.jobs.jobs == {}


def test_unavailable_prober_returns_503(house: House, http: TestClient) -> None:
    house.prober.failure = Unavailable("no process can be had")
    house.prober.failure.__cause__ = TimeoutError()
    with capture_logs() as lines:
        assert sent(http).status_code == 503
    assert lines[-1]["reason"] == "TimeoutError", "a cause without words is named"
    assert house.jobs.appended == []


# --- the same request again -----------------------------------------------------------------------------------------


def test_equivalent_requests_are_idempotent(http: TestClient) -> None:
    """Explicit defaults or another file name: still the same services over the same bytes."""
    first = http.post("/api/v1/analyze", json=body(), headers={"Idempotency-Key": "k"})
    options = {"caption": False, **SOUND, "speech_lang": "multi"}
    again = http.post("/api/v1/analyze", json=body(options=options, filename="b.wav"), headers={"Idempotency-Key": "k"})
    assert again.json() == first.json()


def test_same_bytes_in_other_raw_format_conflict(http: TestClient) -> None:
    def status(format: str) -> int:
        request = body(content_type=f"audio/x-raw; format={format}")
        return http.post("/api/v1/analyze", json=request, headers={"Idempotency-Key": "k"}).status_code

    assert [status("s16"), status("s16"), status("u16")] == [200, 200, 409]


def test_too_long_idempotency_key_is_rejected(http: TestClient) -> None:
    assert sent(http, key="k" * 255).status_code == 200
    assert sent(http, key="k" * 256).status_code == 400


async def test_spool_stores_and_hashes_data(tmp_path: Path) -> None:
    async with UploadSpool(UploadQuota(tmp_path, OPTIONS.upload_bounds), Holder("o", "p"), hashed=True) as spool:
        for piece in (b"one", memoryview(b"two"), b""):
            spool.write(piece)
        assert (spool.size, spool.read(2, 3), spool.read(5, 9)) == (6, b"etw", b"o")
        assert spool.digest() == blake2b(b"onetwo", digest_size=32).digest()
        assert list(tmp_path.iterdir()) == [], "it has no name"


async def test_spool_is_closed_in_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    async with UploadSpool(UploadQuota(tmp_path, OPTIONS.upload_bounds), Holder("o", "p")) as spool:
        close = spool._close

        def noted() -> None:
            threads.append(threading.get_ident())
            close()

        monkeypatch.setattr(spool, "_close", noted)
    assert len(threads) == 1
    assert threads != [threading.get_ident()]
    assert left_open(tmp_path) == []


def test_request_is_forwarded_to_owner_of_idempotency_key(house: House, http: TestClient, service: Running) -> None:
    """A request with a key belongs to the owner of the key's job; its body is streamed there."""
    first = sent(http, key="one").json()
    house.jobs.jobs.clear()
    house.jobs.elsewhere[first["job_id"]] = service.url
    appended = len(house.jobs.appended)
    answers = [sent(http, os.urandom(2 * PART_BYTES), key="one") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 409]
    assert answers[0].json()["job_id"] == first["job_id"]
    assert len(house.jobs.appended) == appended, "nothing was appended here"


def test_forwarded_upload_has_longer_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner checks the recording and writes it to its log; reads have shorter timeouts."""
    monkeypatch.setattr("app.cluster.forwarding.GRACE_SECONDS", 0.0)
    monkeypatch.setattr("app.cluster.forwarding.SILENCE_SECONDS", 0.05)
    house, owner = (House(msgspec.structs.replace(OPTIONS, spool=tmp_path, poll_seconds=0.05)) for _ in range(2))

    async def slow(file: int, declared: Media | None) -> ProbeResult:
        await asyncio.sleep(0.1)
        return owner.prober.found

    monkeypatch.setattr(owner.prober, "probe", slow)
    with serving(owner) as far, client_of(house) as http:
        job = sent(http, key="one").json()["job_id"]
        house.jobs.elsewhere[job] = far.url
        assert (sent(http, key="one").status_code, list(owner.jobs.jobs)) == (200, [job])


def test_forwarded_upload_is_not_forwarded_again(house: House, http: TestClient) -> None:
    job = sent(http, key="one").json()["job_id"]
    house.jobs.elsewhere[job] = "http://127.0.0.1:1"
    headers = {"Idempotency-Key": "one", "X-Earshot-Forwarded": "1"}
    assert http.post("/api/v1/analyze", json=body(), headers=headers).status_code == 503
    assert sent(http, key="one").status_code == 503, "the owner is not there"


# --- projects -------------------------------------------------------------------------------------------------------


def test_project_at_job_limit_is_rejected(house: House, http: TestClient) -> None:
    assert sent(http, key="known").status_code == 200
    house.jobs.full.add("project")
    refused = sent(http)
    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "1"
    assert len(house.jobs.jobs) == 1
    assert sent(http, project=FREE).status_code == 200
    # An accepted request is answered again.
    assert sent(http, key="known").status_code == 200


def test_concurrent_uploads_are_limited_per_project_and_overall(tmp_path: Path) -> None:
    places = UploadQuota(tmp_path, UploadBounds(7, 2, 100, 0)).places
    slow, sibling = Holder("o", "slow"), Holder("o", "sibling")
    with places.place(slow), places.place(slow):
        with pytest.raises(Unavailable, match="2 of your uploads"), places.place(slow):
            pass
        with places.place(sibling), pytest.raises(Unavailable, match="3 uploads of your org"), places.place(sibling):
            pass
        with ExitStack() as others:
            for number in range(5):
                others.enter_context(places.place(Holder(f"other {number}", "p")))
            with pytest.raises(Unavailable, match="too many uploads"), places.place(Holder("third", "p")):
                pass
        with places.place(Holder("third", "p")):
            pass
    with places.place(slow):
        pass


async def test_spooled_bytes_are_limited_per_project_and_overall(tmp_path: Path) -> None:
    room = UploadQuota(tmp_path, UploadBounds(256, 64, 100, 0))
    async with UploadSpool(room, Holder("third", "p")) as third:
        async with (
            UploadSpool(room, Holder("large", "p")) as first,
            UploadSpool(room, Holder("large", "q")) as beside,
            UploadSpool(room, Holder("b", "p")) as other,
        ):
            first.write(bytes(30))
            with pytest.raises(Unavailable, match="your uploads fill their share"):
                beside.write(bytes(21))
            other.write(bytes(50))
            with pytest.raises(Unavailable, match=r"no room for uploads now: .* EARSHOT_UPLOAD_SPOOL_BYTES"):
                third.write(bytes(21))
            third.write(bytes(20))
        third.write(bytes(30))


def test_uploads_are_rejected_when_disk_is_nearly_full(
    house: House, http: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.http.upload_bounds.shutil.disk_usage", lambda _: mock.Mock(free=4096))
    refused = sent(http)
    assert refused.status_code == 503
    assert "EARSHOT_UPLOAD_FREE_BYTES" in refused.text
    assert refused.headers["retry-after"] == "10"
    assert not house.jobs.jobs
    monkeypatch.undo()
    assert sent(http).status_code == 200


async def test_upload_that_takes_too_long_is_aborted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its place is for others, however steadily it sends."""
    monkeypatch.setattr("app.http.uploads.LONGEST_SECONDS", 0.2)
    house = House(msgspec.structs.replace(OPTIONS, spool=tmp_path, upload_idle_seconds=600))
    headers = {"x-api-key": KEY, "content-type": "multipart/form-data; boundary=b"}
    post = Exchange(house, "/api/v1/analyze_file", "POST", [b"--b\r\n"], **headers)
    assert (await post.end()).status == 408


async def test_slow_upload_holds_slot_until_disconnect(tmp_path: Path) -> None:
    house = House(msgspec.structs.replace(OPTIONS, spool=tmp_path, project_uploads=1))
    post = partial(Exchange, house, "/api/v1/analyze_file", "POST")
    headers = {"x-api-key": KEY, "content-type": "multipart/form-data; boundary=b"}
    first = post([b"--b\r\n"], **headers)
    await until(lambda: first.waiting)
    second = await post([b"--b\r\n"], **headers).end()
    await first.leave()
    third = await post(b"--b\r\n", **headers).end()
    assert (first.status, second.status, third.status) == (0, 503, 400)
