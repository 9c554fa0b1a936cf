"""Besides sessions: predict, tags, client versions, probes, and unknown paths."""

import re
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.contract.answers import watched
from tests.contract.api import Api, Service, b64, generic, silence, tone, wav
from tests.process import ADMIN_KEY
from tests.waiting import wait_for

DOCS = Path(__file__).parents[2] / "docs"


def predict(api: Api, session: str, data: bytes, **more: Any) -> httpx2.Response:
    return api.http.post(f"/audio_sessions/{session}/predict", json={"data": b64(data), **more})


@pytest.mark.both_logs
def test_predict_returns_its_own_window(sense: Api) -> None:
    session = sense.create()
    first, second = predict(sense, session, tone(2)), predict(sense, session, silence(2), sequence=1)
    assert first.status_code == second.status_code == 200
    assert first.json().keys() == {"data", "next_sequence"}
    assert [answer.json()["next_sequence"] for answer in (first, second)] == [1, 2]
    assert (first.json()["data"]["start_time"], first.json()["data"]["end_time"]) == (0, 2)
    assert second.json()["data"]["tags"] == [{"name": "Others", "probability": 0.0}]


def test_predict_rejects_what_upload_rejects(api: Api) -> None:
    session = api.create()
    generic(predict(api, session, tone(1), sequence=1), 409)
    generic(predict(api, session, tone(1), sequence=-1), 400, naming="sequence")
    generic(predict(api, session, tone(1), sequence="0"), 400, naming="sequence")
    generic(predict(api, session, b""), 400, naming="data")
    generic(predict(api, session, bytes(1024 * 1024 + 1)), 413)
    generic(predict(api, api.create("file"), tone(1)), 400)
    api.send(session, tone(1))
    generic(predict(api, session, tone(1)), 400)
    api.seal(session)
    generic(predict(api, session, tone(1)), 403)


@pytest.mark.both_logs
def test_predict_rejects_mismatched_content_type(api: Api) -> None:
    session = api.create(content_type="audio/mp3")
    generic(predict(api, session, wav(tone(1))), 400)
    assert api.page(session)["state"] == "readonly"


@pytest.mark.both_logs
def test_upload_after_predict_is_rejected(api: Api) -> None:
    session = api.create()
    assert predict(api, session, tone(1)).status_code == 200
    generic(api.put(session, 1, tone(1)), 400)


def test_official_tags_have_id_and_name(api: Api, sense: Api) -> None:
    tags = api.http.get("/tags/official").json()
    assert tags == sense.http.get("/tags/official", headers={"X-Api-Key": "any"}).json()
    assert all(tag.keys() == {"id", "name"} for tag in tags)
    assert len({tag["id"] for tag in tags}) == len(tags) > 0
    assert "Dog_bark" in {tag["name"] for tag in tags}


def test_model_list_matches_official_tags(api: Api) -> None:
    told = api.http.get("/api/v1/models").json()
    sounds = told["models"][0]
    assert (sounds["kind"], told["sensitivity_logits"]) == ("sound-events", 0.7)
    assert [tag["name"] for tag in sounds["tags"]] == [tag["name"] for tag in api.http.get("/tags/official").json()]
    assert all(0 < tag["point"] < 1 for tag in sounds["tags"])


@pytest.mark.both_logs
def test_node_report_matches_document(service: Service) -> None:
    keyed = {"Authorization": f"Bearer {ADMIN_KEY}"}
    with watched(httpx2.Client(base_url=f"{service.url}/admin/v1", headers=keyed, timeout=120)) as http:
        # A busy log may answer too late, again and again.
        told = wait_for(lambda: report if (report := http.get("/nodes").json())["nodes"][0]["node"]["parked"] else None)
    assert told["missing"] == []
    facts = told["nodes"][0]["node"]
    assert facts["parked"]["count"] >= len(facts["parked"]["newest"])
    assert [one["number"] for one in facts["partitions"]] == list(range(told["partitions"]))
    assert all(place["behind"] >= 0 for one in facts["partitions"] for place in one["topics"])


def test_client_library_versions_are_reported(sense: Api) -> None:
    assert "1.0.13" in sense.http.get("/client-libraries/versions").json()["supported_versions"]
    latest = sense.http.get("/client-libraries/latest", params={"current_version": "0.2.11"})
    assert isinstance(latest.json()["version"], str)


@pytest.mark.parametrize("path", ["/nothing", "/audio_sessions/a/b/c", "/sense/api/v1", "/audio_sessions//status"])
def test_unknown_path_returns_generic_error(api: Api, path: str) -> None:
    generic(api.http.get(path), 404)


def test_wrong_method_returns_generic_error(api: Api) -> None:
    answer = api.http.get(f"/audio_sessions/{api.create()}")
    generic(answer, 405)
    assert answer.headers["allow"] == "DELETE, PATCH"
    assert answer.reason_phrase == "Method Not Allowed"


def test_probes_and_metrics_respond(api: Api) -> None:
    assert api.http.get("/healthz").json() == {"status": "ok"}
    assert api.http.get("/readyz").json() == {"status": "ok"}
    api.send(api.create(), silence(0.5))
    metrics = api.http.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    assert "earshot_chunks_accepted_total" in metrics.text


def test_pages_name_metrics_as_the_service_does(api: Api) -> None:
    api.http.get("/audio_sessions/", headers={"X-Api-Key": "wrong"})
    shown = set(re.findall(r"^(earshot_\w+)[ {]", api.http.get("/metrics").text, re.MULTILINE))
    for page in (*DOCS.glob("*.md"), DOCS.parent / "README.md"):
        named = set(re.findall(r"`(earshot_\w+)", page.read_text(encoding="utf-8"))) - {
            "earshot_client",
            "earshot_server",
        }
        assert named <= shown, page


def test_root_names_the_service(api: Api) -> None:
    assert api.http.get("/").json()["service"] == "Earshot"
