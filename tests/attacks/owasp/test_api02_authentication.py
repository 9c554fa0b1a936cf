"""API2, broken authentication: no key, wrong keys, keys of other kinds and keys in wrong places."""

import pytest

from tests.attacks.owasp.conftest import Target
from tests.contract.api import RAW
from tests.process import ADMIN_KEY, KEY, ORG_KEY, ask
from topics import apikeys
from topics.apikeys import KeyKind

CREATE = {"type": "stream", "content_type": RAW}
WRONG = {
    "none": {},
    "empty": {"X-Api-Key": ""},
    "another": {"X-Api-Key": "tests-project-key-0123456780"},
    "another case": {"X-Api-Key": KEY.upper()},
    "cut": {"X-Api-Key": KEY[:-1]},
    "longer": {"X-Api-Key": KEY + "0"},
    "well formed": {"X-Api-Key": apikeys.new(KeyKind.PROJECT)},
    "mistyped": {"X-Api-Key": apikeys.new(KeyKind.PROJECT)[:-1] + "!"},
    "of an organization": {"X-Api-Key": ORG_KEY},
    "of the operator": {"X-Api-Key": ADMIN_KEY},
    "in another header": {"Authorization": f"Bearer {KEY}"},
    "in a cookie": {"Cookie": f"X-Api-Key={KEY}"},
    "its hash": {"X-Api-Key": apikeys.digest(KEY).hex()},
    "SQL": {"X-Api-Key": "' OR 1=1 --"},
    "wild": {"X-Api-Key": "%"},
    "letters that are none": {"X-Api-Key": "k\u00fc\u00ff" * 20},
    "very long": {"X-Api-Key": "k" * 8000},
}


@pytest.mark.parametrize("headers", WRONG.values(), ids=WRONG)
def test_wrong_keys_are_rejected(target: Target, headers: dict[str, str]) -> None:
    encoded = {name: value.encode("latin-1") for name, value in headers.items()}
    for path in ("/audio_sessions/", "/sense/api/v1/audio_sessions/", "/api/v1/analyze", "/api/v1/analyze_file"):
        answer = ask("POST", target.url + path, json=CREATE, headers=encoded)  # type: ignore[arg-type]
        assert answer.status_code == 401, path
        assert KEY not in answer.text


def test_key_in_query_or_body_is_ignored(target: Target) -> None:
    for name in ("key", "api_key", "X-Api-Key", "x-api-key"):
        answer = ask("POST", f"{target.url}/audio_sessions/", json={**CREATE, name: KEY}, params={name: KEY})
        assert answer.status_code == 401


def test_duplicate_key_headers_are_rejected(target: Target) -> None:
    headers = [("X-Api-Key", "wrong"), ("X-Api-Key", "wrong too"), ("x_api_key", KEY)]
    assert ask("POST", f"{target.url}/audio_sessions/", json=CREATE, headers=headers).status_code == 401
