"""Bodies of the operator's interface: organizations, projects and keys as JSON."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final, Literal

import msgspec

from topics.ports.administration import LONGEST_NAME, MOST_SECONDS, Organization, Project
from topics.ports.nodes import (
    DeadLetter,
    DiskFacts,
    EngineFacts,
    NodeFacts,
    ParkedFacts,
    ParkedRecord,
    PartitionFacts,
    QueueFacts,
    TopicPlace,
    WorkerFacts,
)
from topics.times import utc_time

PREFIX: Final = "/admin/v1"


#: The accounts check it, and refuse a name that is taken or not printable.
Name = Annotated[
    str,
    msgspec.Meta(
        description=f"1 to {LONGEST_NAME} printable characters; must be unique.",
        extra_json_schema={"minLength": 1, "maxLength": LONGEST_NAME},
    ),
]


class NewOrganization(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body that makes an organization."""

    name: Name


class NewProject(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body that makes a project."""

    name: Name
    organization: Annotated[str | None, msgspec.Meta(description="Id or name; by default the only one.")] = None


class Drain(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The node to stop."""

    url: Annotated[str, msgspec.Meta(description="As `GET /nodes` lists it.")]


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body that sets a plan."""

    free_seconds: Annotated[
        Annotated[int, msgspec.Meta(extra_json_schema={"minimum": 0, "maximum": MOST_SECONDS})] | None,
        msgspec.Meta(description="Seconds of audio in a calendar month (UTC), null for any amount."),
    ]


class ShownOrganization(msgspec.Struct, frozen=True):
    """An organization. The redacted key is called `key_shown_as`, so that it is not mistaken for a key."""

    id: str
    name: str
    created_at: datetime
    key_shown_as: str | None

    @staticmethod
    def of(one: Organization) -> ShownOrganization:
        return ShownOrganization(one.id, one.name, utc_time(one.created_at), one.key)

    def organization(self) -> Organization:
        return Organization(self.id, self.name, _ms(self.created_at), self.key_shown_as)


class ShownProject(msgspec.Struct, frozen=True):
    """A project."""

    id: str
    name: str
    #: Id.
    organization: str
    created_at: datetime
    key_shown_as: str | None
    free_seconds: int | None

    @staticmethod
    def of(one: Project) -> ShownProject:
        return ShownProject(one.id, one.name, one.organization, utc_time(one.created_at), one.key, one.free_seconds)

    def project(self) -> Project:
        return Project(
            self.id, self.name, self.organization, _ms(self.created_at), self.key_shown_as, self.free_seconds
        )


class IssuedKey(msgspec.Struct, frozen=True):
    """A key, shown once."""

    key: str


class MadeOrganization(msgspec.Struct, frozen=True):
    """A new organization and its key."""

    organization: ShownOrganization
    key: str


class MadeProject(msgspec.Struct, frozen=True):
    """A new project and its key."""

    project: ShownProject
    key: str


class Finding(msgspec.Struct, frozen=True):
    """Something the operator should look at."""

    state: Literal["slow", "bad"]
    text: str


class NodeReport(msgspec.Struct, frozen=True):
    """A node and its findings."""

    url: str
    state: Annotated[Literal["good", "slow", "bad"], msgspec.Meta(description="The worst of its findings.")]
    findings: list[Finding]
    node: Annotated[NodeFacts | None, msgspec.Meta(description="Null if it does not answer.")]


class NodesReport(msgspec.Struct, frozen=True):
    """All nodes; the one that was asked comes first."""

    state: Annotated[Literal["good", "slow", "bad"], msgspec.Meta(description="Also bad if partitions are missing.")]
    partitions: Annotated[int, msgspec.Meta(ge=0, description="Of the log.")]
    missing: Annotated[list[int], msgspec.Meta(description="Partitions that no answering node serves.")]
    nodes: list[NodeReport]


class PutBack(msgspec.Struct, frozen=True):
    """A dead letter that is in its topic again."""

    offset: Annotated[int, msgspec.Meta(ge=0, description="There.")]


class AdminError(msgspec.Struct, frozen=True):
    """An error."""

    error: Annotated[str, msgspec.Meta(min_length=1)]


class AdminFault(msgspec.Struct, frozen=True):
    """An error as a client of the interface reads it."""

    error: str
    #: Only in errors of other parts of the service, so it must work without the operator's interface too.
    status_code: int | None = None


def _ms(time: datetime) -> int:
    return round(time.timestamp() * 1000)


#: Examples.
FARM: Final = ShownOrganization("1f3a9c2e", "Farm", datetime(2026, 11, 22, 6, 51, 2, tzinfo=UTC), "eso_12345678...")
BARN: Final = ShownProject("77d0b1aa", "Barn", FARM.id, FARM.created_at, "esp_12345678...", 1200)
KEY: Final = "esp_0123456789abcdefghijklmnopqrstuv"
NODE: Final = NodeFacts(
    url="http://barn:8000",
    version="0.1.0",
    up_seconds=86_400,
    not_ready=None,
    partitions=[PartitionFacts(0, "serving", 4, [TopicPlace("earshot.session.command.v1", 1024, 0)])],
    partition_count=1,
    queues=[QueueFacts("records that wait for the log", bytes=4096, bytes_bound=67_108_864, items=2)],
    engines=[EngineFacts("speech", "http://127.0.0.1:8100", "whisper-base", True, 12, 0, 1, 4, latency_ms=820)],
    workers=[WorkerFacts(4711, None, "busy", 0.35, 3, 0, 0)],
    models=["yamnet@e1f174ba-71e54a"],
    disks=[DiskFacts("data", 512_110_190_592, 402_653_184_000, 268_435_456)],
    parked=ParkedFacts(
        1,
        [
            ParkedRecord(
                "earshot.session.command.v1", 0, 17, datetime(2026, 11, 22, 6, 51, 2, tzinfo=UTC), "RecordError: ..."
            )
        ],
    ),
    log_error=None,
    sessions=3,
    jobs=1,
    lag_seconds=0.2,
    job_lag_seconds=0.0,
)
LETTER: Final = DeadLetter(
    "earshot.session.command.v1", 0, 17, FARM.created_at, "RecordError: ...", "4bG4kCD3", b"\x01\x93"
)
NODES: Final = NodesReport(
    "bad",
    1,
    [],
    [
        NodeReport(NODE.url, "slow", [Finding("slow", "1 records could not be read and were set aside")], NODE),
        NodeReport("http://shed:8000", "bad", [Finding("bad", "it does not answer")], None),
    ],
)
