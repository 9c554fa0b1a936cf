"""Alarms and destinations of the tests."""

import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from topics.alarms.alarms import Alarm, Delivery
from topics.ports.alarms import Destination

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OLD_SECRET = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"

ALARM = Alarm(
    session="Zm9vYmFyYmF6cXV4c3BhbUVH",
    sequence=3,
    project="acme",
    rule="rule-1",
    rule_name="smoke alarm",
    source="Küche",
    labels={"floor": "2"},
    window=17,
    what="heard",
    begins_at=1_780_000_000_000,
    ends_at=1_780_000_003_000,
    told=True,
    start_ms=8500,
    end_ms=11_500,
    made_at=1_780_000_004_000,
    tags=(("Smoke_detector", 0.93123),),
    level=-21.44,
    left_out=2,
    deliveries=(Delivery("hook"),),
)


def alarm(**changes: Any) -> Alarm:
    return msgspec.structs.replace(ALARM, **changes)


def destination(url: str, **changes: Any) -> Destination:
    one = Destination("hook", "acme", "our hook", "webhook", url, True, None, (SECRET,))
    return msgspec.structs.replace(one, **changes)


def certified(directory: Path, host: str) -> tuple[Path, ssl.SSLContext]:
    """Make a certificate of a host; return its file, beside `key.pem`, and the context of a server."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    made = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -keyout key.pem -out host.pem"
    name = ["-subj", f"/CN={host}", "-addext", f"subjectAltName=DNS:{host}"]
    subprocess.run(["openssl", *made.split(), *name], cwd=directory, check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(directory / "host.pem", directory / "key.pem")
    return directory / "host.pem", context
