"""The vendor's public clients, unmodified, each in a virtual environment that is created once."""

import json
import subprocess
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.interop.environments import RUN_SECONDS, python

DRIVERS: Final = Path(__file__).with_name("drivers")


class Said(msgspec.Struct, frozen=True):
    """What a client returned, or the exception that it raised; `text` is that as text, `message` its attribute."""

    value: Any = None
    raised: str | None = None
    message: str = ""
    text: str = ""


class VendorClient(msgspec.Struct, frozen=True):
    """A release of a public client, and its driver."""

    package: str
    version: str
    driver: str

    def call(self, *arguments: str) -> Any:
        """Run the driver in the client's environment, and return the JSON that it prints."""
        done = subprocess.run(
            [python(self.package, self.version), "-W", "ignore", DRIVERS / self.driver, *arguments],
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])


def said(version: str, *calls: tuple[object, ...]) -> list[Said]:
    """Return what `cochl` makes of calls, in sequence; each is host, key, `Class.method`, and its arguments."""
    return msgspec.convert(VendorClient("cochl", version, "cochl_calls.py").call(json.dumps(calls)), list[Said])
