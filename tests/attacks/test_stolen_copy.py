"""A copy of a service's data directory, with its database, gives no access to anything that needs a key."""

import base64
import hmac
import re
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx2
import pytest

from tests.contract.api import tone, wav
from tests.process import KEY, ORG_KEY, ServiceProcess
from topics.apikeys import KeyKind
from topics.keys import ALPHABET, ID_LENGTH
from topics.signing import Signer

pytestmark = pytest.mark.slow

FORM: Final[Any] = {
    "options": (None, '{"sound_event_detection":true}'),
    "audio": ("a.wav", wav(tone(1.0)), "audio/wav"),
}
IDEMPOTENCY_KEY: Final = "recording-1"
#: A possible secret in any file.
WORD: Final = re.compile(rb"[\x21-\x7e]{20,64}")


class Copy:
    """The thief's copy: the files, and everything derived from them."""

    def __init__(self, directory: Path) -> None:
        #: All stored text, and other possible secrets in any file.
        self.words = {
            word.decode("ascii")
            for file in directory.rglob("*")
            if file.is_file() and not {"log", "tables"} & {*file.relative_to(directory).parts}
            for word in WORD.findall(file.read_bytes())
            if file.suffix != ".db"
        }
        with closing(sqlite3.connect(directory / "earshot.db")) as database:
            tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            values = {value for name in tables for row in database.execute(f"SELECT * FROM {name}") for value in row}
            self.projects = database.execute("SELECT organization_id, id FROM projects").fetchall()
            #: Each could be a signing secret.
            self.secrets = [
                value for (value,) in database.execute("SELECT value FROM secrets") if isinstance(value, bytes)
            ]
        # A header has no other characters.
        self.words |= {text for text in values if isinstance(text, str) and text.isascii() and text.isprintable()}
        self.digests = [value for value in values if isinstance(value, bytes)]

    def candidates(self) -> Iterator[str]:
        """Yield possible keys and passes: stored text, and signatures by stored secrets."""
        yield from sorted(self.words)
        for digest in self.digests:
            yield from (digest.hex(), base64.urlsafe_b64encode(digest).decode("ascii"))
            yield from (kind + digest.hex()[:36] for kind in KeyKind)
        # The form of passes before they were random.
        end = (int(time.time()) + 3600).to_bytes(8, "big")
        for secret, (organization, project), digest in product(self.secrets, self.projects, self.digests):
            for who in (project.encode(), bytes(24)):
                yield "pass_" + Signer(secret, b"pass", 17).seal(organization.encode() + who + end + digest[:8])

    def links(self, job: str) -> Iterator[str]:
        """Yield possible link tokens for the recording of a job."""
        yield from self.candidates()
        end = (int(time.time()) + 3600).to_bytes(8, "big")
        for secret in self.secrets:
            yield Signer(secret, b"job audio", 16).seal(end, job.encode("ascii"))

    def job_ids(self) -> Iterator[str]:
        """Yield the possible ids for a known Idempotency-Key."""
        for secret, (_, project) in product(self.secrets, self.projects):
            for sent in (b"", *(digest.hex().encode() + b"\0" for digest in self.digests)):
                mac = hmac.digest(secret, sent + project.encode() + b"\0" + IDEMPOTENCY_KEY.encode(), "sha256")
                number = int.from_bytes(mac, "big")
                base = len(ALPHABET)
                yield "".join(ALPHABET[number // base**place % base] for place in range(ID_LENGTH))


def test_stolen_copy_grants_no_access(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path / "data", model="sed-mini", job_audio_seconds=3600, key_tries=1e6) as service:
        token = service.command("link").strip().rpartition("/")[2]
        with httpx2.Client(base_url=service.url, timeout=60) as http:
            passes: dict[str, str] = http.post("/dashboard/sign-in", json={"token": token}).json()
            keyed = {"X-Api-Key": KEY}
            job = http.post("/api/v1/analyze_file", files=FORM, headers=keyed).json()["job_id"]
            link = http.post(f"/api/v1/jobs/{job}/audio", headers=keyed).json()["url"]
            assert http.get(link).status_code == 200
            assert http.get("/api/v1/jobs", headers={"X-Api-Key": passes["project"]}).status_code == 200
            service.command("link")
        service.stop()
        shutil.copytree(service.data, tmp_path / "copy")
        copy = Copy(tmp_path / "copy")
        assert len(copy.digests) == 10, (
            "two keys, two passes, two links, a secret, the note of ended keys, marks of the log and of the database"
        )
        service.start()
        with httpx2.Client(base_url=service.url, timeout=60) as http:
            known = {**keyed, "Idempotency-Key": IDEMPOTENCY_KEY}
            later = http.post("/api/v1/analyze_file", files=FORM, headers=known).json()["job_id"]
            assert opened(http, copy, job) == []
            assert later not in set(copy.job_ids())
            # Issued passes keep working: the copy was tried on a working service.
            assert http.get(link).status_code == 200
            for header, key in (("X-Api-Key", KEY), ("X-Api-Key", passes["project"])):
                assert http.get("/api/v1/jobs", headers={header: key}).status_code == 200
            for key in (ORG_KEY, passes["organization"]):
                assert http.get("/api/v2/speakers", headers={"X-Org-Key": key}).status_code == 200


def opened(http: httpx2.Client, copy: Copy, job: str) -> list[str]:
    """Try every candidate; return the answers that are not refusals."""

    def refused(method: str, path: str, **more: Any) -> bool:
        # A rate limit says nothing about this candidate.
        while (status := http.request(method, path, **more).status_code) in (429, 503):
            time.sleep(0.1)
        return status >= 400

    asked = []
    for key in copy.candidates():
        asked += [
            ("/api/v1/jobs", {"X-Api-Key": key}),
            ("/api/v2/speakers", {"X-Org-Key": key}),
            ("/admin/v1/projects", {"Authorization": f"Bearer {key}"}),
        ]
    asked += [(f"/api/v1/jobs/{job}/audio?token={quote(token)}", {}) for token in copy.links(job)]
    asked += [(f"/api/v1/jobs/{one}/captions.vtt", {}) for one in copy.job_ids()]
    found = [f"{path} {headers}" for path, headers in asked if not refused("GET", path, headers=headers)]
    sign_ins = ({"token": token} for token in copy.candidates() if token)
    return found + [str(body) for body in sign_ins if not refused("POST", "/dashboard/sign-in", json=body)]
