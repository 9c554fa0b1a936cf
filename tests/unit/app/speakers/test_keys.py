"""Isolation of speakers: every route with every kind of key, and no access across organizations."""

from typing import Any

import msgspec
import pytest
from starlette.testclient import TestClient

from app.routes import SPEAKER_ROUTES, SPEAKERS_PREFIX
from tests.unit.app.conftest import KEY, OPTIONS, ORG_KEY, House
from tests.unit.app.speakers.conftest import FORM, form, opened, refused

ROUTES = [(method, path) for path, handlers in SPEAKER_ROUTES.items() for method in handlers]
OTHER_KEY = "a-key-of-the-other-organization"


def ask(http: TestClient, method: str, path: str, **headers: str) -> Any:
    """Send a request that is complete except for its key."""
    body = form("Anna") if method == "POST" else b""
    given = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    return http.request(method, f"{SPEAKERS_PREFIX}{path}?speaker=Anna", content=body, headers=given)


@pytest.fixture
def stranger(house: House) -> TestClient:
    house.directory.organizations[OTHER_KEY] = "other"
    return TestClient(house.app, headers={"Content-Type": FORM}, raise_server_exceptions=False)


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_every_route_requires_organization_key(house: House, stranger: TestClient, method: str, path: str) -> None:
    refused(ask(stranger, method, path), "x_org_key required", 401)
    refused(ask(stranger, method, path, X_Org_Key=" "), "x_org_key required", 401)
    no_form = stranger.request(method, SPEAKERS_PREFIX + path, content=b"no form", headers={"Content-Type": "a/b"})
    refused(no_form, "x_org_key required", 401)
    for other in (KEY, "unknown", ORG_KEY[:-1], "\u00fc"):
        refused(ask(stranger, method, path, X_Org_Key=other), "organization not found", 401)
    for key in (KEY, ORG_KEY):
        refused(ask(stranger, method, path, X_Api_Key=key), "x_org_key required", 401)
    assert house.speakers.calls == 0
    text = stranger.get("/metrics").text
    assert 'earshot_key_failures_total{kind="organization",reason="missing"} 5.0' in text
    assert 'earshot_key_failures_total{kind="organization",reason="invalid"} 4.0' in text


@pytest.mark.parametrize("path", ["/api/v1/analyze", "/api/v1/analyze_file", "/audio_sessions/"])
def test_organization_key_opens_no_other_routes(stranger: TestClient, path: str) -> None:
    answer = stranger.post(path, headers={"X-Api-Key": ORG_KEY, "X-Org-Key": ORG_KEY})
    assert (answer.status_code, answer.json()["error"]) == (401, "Invalid API key")
    answer = stranger.post(path, headers={"X-Org-Key": ORG_KEY})
    assert (answer.status_code, answer.json()["error"]) == (401, "API key required")


def test_key_caches_of_both_kinds_are_separate(house: House, stranger: TestClient) -> None:
    """A cached project key says nothing about an organization key."""
    session = {"type": "stream", "content_type": "audio/wav"}
    assert stranger.post("/audio_sessions/", json=session, headers={"X-Api-Key": KEY}).status_code == 200
    refused(ask(stranger, "GET", "/speakers", X_Org_Key=KEY), "organization not found", 401)
    assert opened(ask(stranger, "GET", "/speakers", X_Org_Key=ORG_KEY)) == []
    assert stranger.post("/audio_sessions/", json=session, headers={"X-Api-Key": ORG_KEY}).status_code == 401


@pytest.mark.parametrize("seconds", [0, 600])
def test_rotated_key_is_valid_while_cached(seconds: int) -> None:
    house = House(msgspec.structs.replace(OPTIONS, key_cache_seconds=seconds))
    http = TestClient(house.app, raise_server_exceptions=False)
    assert opened(ask(http, "GET", "/speakers", X_Org_Key=ORG_KEY)) == []
    house.directory.organizations = {"a-new-key": "organization"}
    old = ask(http, "GET", "/speakers", X_Org_Key=ORG_KEY)
    if seconds:
        assert opened(old) == []
    else:
        refused(old, "organization not found", 401)
    assert opened(ask(http, "GET", "/speakers", X_Org_Key="a-new-key")) == []
