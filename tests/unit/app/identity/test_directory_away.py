"""While the database of keys is away, keys that were seen go on, and others are told when to retry."""

import pytest
from starlette.testclient import TestClient

from tests.unit.app.conftest import KEY, ORG_KEY, House


@pytest.mark.parametrize(
    ("path", "header", "key", "status"),
    [
        ("/audio_sessions/", "X-Api-Key", KEY, 503),
        ("/api/v1/jobs", "X-Api-Key", KEY, 500),  # The contract's status of a key that cannot be verified.
        ("/api/v2/speakers", "X-Org-Key", ORG_KEY, 503),
    ],
)
def test_seen_keys_go_on_and_others_are_told_when_to_retry(
    house: House, http: TestClient, path: str, header: str, key: str, status: int
) -> None:
    assert http.get(path, headers={header: key}).status_code == 200
    house.directory.down = True
    house.forget_keys()
    unseen = http.get(path, headers={header: key})
    assert (unseen.status_code, unseen.headers["retry-after"]) == (status, "5")
    assert "verification failed" in unseen.json()["error"]
    house.directory.down = False
    assert http.get(path, headers={header: key}).status_code == 200
    house.directory.down = True
    assert http.get(path, headers={header: key}).status_code == 200, "it was seen"
