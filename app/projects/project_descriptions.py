"""The operations of projects, as the documents describe them."""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any, Final

import msgspec

from app.http.bodies import decode
from app.http.descriptions import Description, Fault, Key, Parameter, fault_of, json_answer, json_body
from app.http.operation import Handler
from app.projects import operations
from app.projects.operations import DAYS, MOST_DAYS, check_keeping, days_of
from app.projects.project_bodies import ModelList, NewKey, ProjectChange, ProjectReport, ShownKey, ShownUsage, UsageRow
from app.shared_descriptions import PROJECT_KEY
from app.sound_rules import SoundRuleFields
from topics.errors import BadRequest, DirectoryDown, NotFound
from topics.ports.ledger import MeteredService
from topics.ports.models import ModelFacts, TagFacts, TagFigures

DAY: Final = date(2026, 11, 22)
SHOWN: Final = DAY.isoformat()
MADE: Final = datetime(2026, 11, 1, 9, 30, tzinfo=UTC)
USED: Final = datetime(2026, 11, 22, 6, 49, tzinfo=UTC)
BARN: Final = ProjectReport(
    "77d0b1aa",
    "Barn",
    "Farm",
    MADE,
    ShownKey("esp_...stuv", MADE, USED),
    1200,
    42.5,
    3600,
    0,
    86_400,
    None,
    {"Siren": SoundRuleFields(2, 3, 10.0)},
    False,
)
USAGE: Final = ShownUsage(date(2026, 11, 1), DAY, [UsageRow(DAY, MeteredService.SOUND, 3, 42.5)])
DOG: Final = TagFacts("Dog_bark", "Animal", 0.2788, 32, TagFigures(32, 30, 31, 30, 0.938, 0.968, 0.971, False))
YAMNET: Final = ModelFacts(
    id="yamnet@e1f174ba-71e54a",
    kind="sound-events",
    name="yamnet",
    version="1",
    licence="Apache-2.0",
    source="https://tfhub.dev/google/lite-model/yamnet/classification/tflite/1",
    sha256="e1f174baa8af1d27e494c6ebcef80741ce80572d5e0873554c65502a458ce4b9",
    sample_rate=16_000,
    window_seconds=0.975,
    hop_seconds=0.5,
    classes=521,
    how_measured="617 clips of five seconds of 50 sounds",
    recordings=617,
    tags=[DOG, TagFacts("Siren", "Alarm", 0.4, 0, None)],
)
MODELS: Final = ModelList([YAMNET], 0.7)
FAULTS: Final[tuple[Fault, ...]] = (
    DirectoryDown("the database does not answer"),
    NotFound("this project was deleted"),
    500,
)

OPERATIONS: Final[Mapping[Handler[Any], Description]] = {
    operations.read_project: Description(
        summary="Read the project",
        text="The project of the key: its plan, its jobs' usage this month, how long audio is kept, and a redacted "
        "key.",
        key=PROJECT_KEY,
        answers=json_answer("The project.", barn=BARN),
        faults=FAULTS,
    ),
    operations.change_project: Description(
        summary="Change the project",
        text="Sets how long a job's audio is kept after acceptance (at most {longest_keep_audio_seconds} s, by "
        "default {keep_audio_seconds} s), when a sound is on in sessions without rules of their own, and whether to "
        "keep the data that own sounds are learnt from. Applies to jobs and sessions created from now on; on other "
        "nodes within {key_cache_seconds} s.",
        key=PROJECT_KEY,
        bodies=json_body(
            hour=ProjectChange(3600),
            default=ProjectChange(None),
            rule=ProjectChange(sound_rule=SoundRuleFields(2, 3)),
            embeddings=ProjectChange(keep_embeddings=True),
        ),
        answers=json_answer("The project.", barn=BARN),
        faults=(
            fault_of(decode, msgspec.json.Decoder(ProjectChange), b"[]"),
            BadRequest(operations.NO_CHANGE),
            fault_of(check_keeping, -1, 86_400),
            *FAULTS,
        ),
    ),
    operations.rotate_key: Description(
        summary="Issue a new key of the project",
        text="It is shown once. Send the key itself, not a session token. The old key stops here at once, on other "
        "nodes within {key_cache_seconds} s; so do its session tokens, links and open streams.",
        key=PROJECT_KEY,
        answers=json_answer(
            "The key.",
            key=NewKey("esp_0123456789abcdefghijklmnopqrstuv"),
            headers={"Cache-Control": "Do not cache: shown once."},
        ),
        faults=FAULTS,
    ),
    operations.models_in_use: Description(
        summary="List the models in use",
        text="The models in use; for the sound model also each sound's operating point and its figures there. A step "
        "of sensitivity moves the logit of each point by `sensitivity_logits`: up for fewer reports. Without a "
        "project's key only models that come with the service are listed.",
        key=Key("projectKey", optional=True),
        answers=json_answer("The sound model for new sessions first.", one=MODELS),
        faults=(500,),
    ),
    operations.read_daily_usage: Description(
        summary="Read the usage of the project",
        text=f"By day (UTC) and service, for at most {MOST_DAYS} days.",
        key=PROJECT_KEY,
        parameters=(
            Parameter("since", "query", date, f"The first day, by default {DAYS - 1} before the last.", example=SHOWN),
            Parameter("until", "query", date, "The last day, by default today (UTC).", example=SHOWN),
        ),
        answers=json_answer("The usage.", november=USAGE),
        faults=(
            fault_of(days_of, {"until": "yesterday"}),
            fault_of(days_of, {"since": "2026-11-23", "until": "2026-11-22"}),
            *FAULTS,
        ),
    ),
}
