"""What a service tells of itself: its tags and models, its nodes, its metrics."""

import re

import httpx2
import pytest

from tests.conftest import ROOT
from tests.contract.answers import watched
from tests.contract.api import Api, Service, silence
from tests.process import ADMIN_KEY
from tests.waiting import wait_for


def test_model_list_matches_official_tags(api: Api, sense: Api) -> None:
    tags = api.http.get("/tags/official").json()
    assert tags == sense.http.get("/tags/official", headers={"X-Api-Key": "any"}).json()
    assert all(tag.keys() == {"id", "name"} for tag in tags)
    assert len({tag["id"] for tag in tags}) == len(tags) > 0
    assert "Dog_bark" in {tag["name"] for tag in tags}
    told = api.http.get("/api/v1/models").json()
    sounds = told["models"][0]
    assert (sounds["kind"], told["sensitivity_logits"]) == ("sound-events", 0.7)
    assert [tag["name"] for tag in sounds["tags"]] == [tag["name"] for tag in tags]
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


def test_probes_respond_and_pages_name_metrics_as_the_service_does(api: Api) -> None:
    for probe in ("healthz", "readyz"):
        assert api.http.get(f"/{probe}").json() == {"status": "ok"}
    api.send(api.create(), silence(0.5))
    api.http.get("/audio_sessions/", headers={"X-Api-Key": "wrong"})
    metrics = api.http.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    shown = set(re.findall(r"^(earshot_\w+)[ {]", metrics.text, re.MULTILINE))
    assert "earshot_chunks_accepted_total" in shown
    for page in (*(ROOT / "docs").glob("*.md"), ROOT / "README.md"):
        named = set(re.findall(r"`(earshot_\w+)", page.read_text(encoding="utf-8")))
        assert named - {"earshot_client", "earshot_server"} <= shown, page
