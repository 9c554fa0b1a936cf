"""What every operation of the edge works with."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from itertools import count

import msgspec

from app.http.forwarding import Forwarder
from app.http.options import EdgeOptions
from app.jobs.rendering import Results
from app.keys import Keyring
from app.metrics import Meters
from app.sessions.rendering import Renderer
from app.sessions.tokens import Tokens
from topics.ports.directory import Directory, Principal
from topics.ports.health import Health
from topics.ports.jobs import Jobs
from topics.ports.prober import Prober
from topics.ports.sessions import Sessions
from topics.ports.speakers import Speakers


def command_ids() -> Iterator[str]:
    """Yield ids that no other process and no later run gives out: 64 random bits, then a count."""
    run = secrets.token_hex(8)
    return (f"{run}-{number:x}" for number in count())


class Edge(msgspec.Struct, frozen=True):
    """The ports, and what the edge itself remembers."""

    sessions: Sessions
    jobs: Jobs
    directory: Directory
    prober: Prober
    speakers: Speakers
    health: Health
    options: EdgeOptions
    project_keys: Keyring[Principal]
    organization_keys: Keyring[str]
    tokens: Tokens
    renderer: Renderer
    results: Results
    meters: Meters
    commands: Iterator[str]
    forwarder: Forwarder
