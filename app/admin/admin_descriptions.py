"""The operator's interface, as the documents describe it."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

import msgspec

from app.admin import operations
from app.admin.admin_bodies import (
    Finding,
    IssuedKey,
    MadeOrganization,
    MadeProject,
    NewOrganization,
    NewProject,
    NodeReport,
    NodesReport,
    Plan,
    ShownOrganization,
    ShownProject,
)
from app.admin.guard import INVALID, MISSING
from app.admin.usage_rows import MONTH, LineRow, TotalRow
from app.http.bodies import decode
from app.http.descriptions import Answer, Description, Fault, Key, Parameter, fault_of, json_answer, json_body
from app.http.operation import Handler
from topics.errors import BadRequest, DirectoryDown, NotFound, Unauthorized
from topics.ports.ledger import MeteredService
from topics.ports.nodes import (
    NEWEST_PARKED,
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

OPERATOR_KEY: Final = Key("operatorKey")
FARM: Final = ShownOrganization("1f3a9c2e", "Farm", datetime(2026, 11, 22, 6, 51, 2, tzinfo=UTC), "eso_12345678...")
BARN: Final = ShownProject("77d0b1aa", "Barn", FARM.id, FARM.created_at, "esp_12345678...", 1200)
KEY: Final = "esp_0123456789abcdefghijklmnopqrstuv"
TOTAL: Final = TotalRow("2026-11", "Barn", MeteredService.SOUND, 3, 42.5, "yamnet@0123abcd", BARN.id, FARM.id)
LINE: Final = LineRow(
    "2026-11-22T06:51:02.117+00:00", "4bG4kCD3", MeteredService.SOUND, 14.0, "yamnet@0123abcd", BARN.id, FARM.id
)
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
NODES: Final = NodesReport(
    "bad",
    1,
    [],
    [
        NodeReport(NODE.url, "slow", [Finding("slow", "1 records could not be read and were set aside")], NODE),
        NodeReport("http://shed:8000", "bad", [Finding("bad", "it does not answer")], None),
    ],
)
CSV: Final = (
    "month,project,service,jobs,audio_seconds,models,project_id,organization_id\n"
    f"2026-11,Barn,sound_event_detection,3,42.500,yamnet@0123abcd,{BARN.id},{FARM.id}\n"
)
ONCE: Final = {"Cache-Control": "Do not cache: shown once."}
FAULTS: Final[tuple[Fault, ...]] = (
    Unauthorized(MISSING),
    Unauthorized(INVALID),
    DirectoryDown("the database does not answer"),
    500,
)
MISSPELT: Final = BadRequest("month: '2026-13' is not a month such as 2026-11")
UNKNOWN: Final = NotFound("there is no project 'Barn'")
AMBIGUOUS: Final = BadRequest("there are several projects 'Barn': give the id")
_TEXTS: Final[Mapping[str, tuple[Any, str]]] = {
    "organization": (str, "Id or name."),
    "project": (str, "Id or name."),
    "service": (MeteredService, "One service of jobs, or `audio_session`."),
    "month": (Annotated[str, msgspec.Meta(pattern=MONTH)], "Calendar month (UTC), such as 2026-11."),
    "lines": (Literal[operations.BOOLEANS], "Single lines of the ledger instead of totals."),
    "format": (Literal[operations.FORMATS], "By default `csv` if the header Accept asks for it, otherwise `json`."),
}


def _named(what: str) -> Parameter:
    return Parameter("reference", "path", str, f"Id or name of the {what}.", required=True, example="Barn")


def _query(name: str) -> Parameter:
    return Parameter(name, "query", *_TEXTS[name])


def _ambiguous(of: str) -> tuple[Fault, ...]:
    # No two organizations have one name.
    return (AMBIGUOUS,) if of == "a project" else ()


def _key(of: str) -> Description:
    return Description(
        summary=f"Issue a new key of {of}",
        text="The old key stops here at once, and on other nodes when their cached check of it expires.",
        key=OPERATOR_KEY,
        end="/key",
        parameters=(_named(of.rpartition(" ")[2]),),
        answers=json_answer("The key.", key=IssuedKey(KEY), headers=ONCE),
        faults=(*FAULTS, *_ambiguous(of), UNKNOWN),
    )


GOES: Final = (
    "Its usage stays in the ledger. Keys, links and ids of sessions and jobs are refused here at once, on other nodes "
    "within five seconds. The nodes then delete the sessions and jobs."
)


def _deletion(of: str, text: str) -> Description:
    return Description(
        summary=f"Delete {of}",
        text=text,
        key=OPERATOR_KEY,
        parameters=(_named(of.rpartition(" ")[2]),),
        answers={204: Answer("Deleted.")},
        faults=(*FAULTS, *_ambiguous(of), UNKNOWN),
    )


OPERATIONS: Final[Mapping[Handler[Any], Description]] = {
    operations.list_organizations: Description(
        summary="List organizations",
        key=OPERATOR_KEY,
        answers={200: Answer("By name.", (list[ShownOrganization],), {"one": [FARM]})},
        faults=FAULTS,
    ),
    operations.create_organization: Description(
        summary="Create an organization",
        text="The answer has its key, which is shown only once.",
        key=OPERATOR_KEY,
        bodies=json_body(farm=NewOrganization("Farm")),
        answers={
            201: Answer("It, and its key.", (MadeOrganization,), {"farm": MadeOrganization(FARM, KEY)}, headers=ONCE)
        },
        faults=(*FAULTS, fault_of(decode, msgspec.json.Decoder(NewOrganization), b"{}")),
    ),
    operations.rotate_organization_key: _key("an organization"),
    operations.delete_organization: _deletion(
        "an organization", f"With its projects and all they have, its key and its speakers. {GOES}"
    ),
    operations.list_projects: Description(
        summary="List projects",
        key=OPERATOR_KEY,
        parameters=(_query("organization"),),
        answers={200: Answer("By name.", (list[ShownProject],), {"one": [BARN]})},
        faults=(*FAULTS, BadRequest("name: not a parameter here; use one of organization"), UNKNOWN),
    ),
    operations.create_project: Description(
        summary="Create a project",
        text="The answer has its key, which is shown only once.",
        key=OPERATOR_KEY,
        bodies=json_body(barn=NewProject("Barn", "Farm")),
        answers={201: Answer("It, and its key.", (MadeProject,), {"barn": MadeProject(BARN, KEY)}, headers=ONCE)},
        faults=(*FAULTS, fault_of(decode, msgspec.json.Decoder(NewProject), b"{}"), UNKNOWN),
    ),
    operations.rotate_project_key: _key("a project"),
    operations.plan_project: Description(
        summary="Set the plan of a project",
        text="Seconds of audio that its jobs may analyse in a calendar month (UTC); null for any amount.",
        key=OPERATOR_KEY,
        end="/plan",
        parameters=(_named("project"),),
        bodies=json_body(free=Plan(1200), unlimited=Plan(None)),
        answers={204: Answer("Set.")},
        faults=(*FAULTS, fault_of(decode, msgspec.json.Decoder(Plan), b"{}"), UNKNOWN),
    ),
    operations.delete_project: _deletion("a project", f"With its key, sessions, jobs and own sounds. {GOES}"),
    operations.list_nodes: Description(
        summary="See how the nodes are",
        text="For each node: its partitions and how far they are folded, its queues and their limits, workers, "
        f"engines, disks, and the newest {NEWEST_PARKED} unreadable records. The node you ask asks the others; one "
        "that does not answer is listed with the reason.",
        key=OPERATOR_KEY,
        answers=json_answer("The nodes.", two=NODES),
        faults=(*(fault for fault in FAULTS if not isinstance(fault, DirectoryDown)),),
    ),
    operations.read_usage: Description(
        summary="Read the usage",
        text="Totals by month, project and service, or the lines of the ledger. Unknown parameters are refused: a "
        "misspelt filter would return everybody's usage.",
        key=OPERATOR_KEY,
        parameters=tuple(map(_query, operations.USAGE)),
        answers={
            200: (
                Answer("Totals, or lines.", (list[TotalRow], list[LineRow]), {"totals": [TOTAL], "lines": [LINE]}),
                Answer("The same as a table.", (str,), {"totals": CSV}, media="text/csv"),
            )
        },
        faults=(*FAULTS, MISSPELT, UNKNOWN),
    ),
}
