"""Operations on the project of the key."""

from datetime import UTC, date, datetime, timedelta
from typing import Final

import msgspec
import structlog
from msgspec import UNSET

from app.http.bodies import SMALL_BODY, decode
from app.http.call import Call
from app.http.descriptions import Fault, Key, Parameter, fault_of, json_answer, json_body, operation
from app.http.queries import query_parameters, read_date
from app.http.replies import Reply, json_reply, once_reply
from app.http.turns import holder_of
from app.identity.authentication import Authenticator
from app.identity.changed_keys import ChangedKeys
from app.identity.keys import PROJECT
from app.options import EdgeOptions
from app.projects.project_bodies import (
    BARN,
    DAY,
    MODELS,
    USAGE,
    ModelList,
    NewKey,
    ProjectChange,
    ShownUsage,
    UsageRow,
    report_of,
)
from app.shared_descriptions import PROJECT_KEY
from app.windows import check_tags
from topics.choices import SoundRule
from topics.errors import BadRequest, DirectoryDown, NotFound
from topics.ports.directory import Principal
from topics.ports.models import Models
from topics.ports.projects import Projects
from topics.scores import STEP, STEPS_PER_SENSITIVITY
from topics.times import DAY_MS, day_ms

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

#: Days of usage in one answer, at most and by default.
MOST_DAYS: Final = 366
DAYS: Final = 31
SHOWN: Final = DAY.isoformat()
FAULTS: Final[tuple[Fault, ...]] = (
    DirectoryDown("the database does not answer"),
    NotFound("this project was deleted"),
    500,
)
_CHANGE: Final = msgspec.json.Decoder(ProjectChange)
NO_CHANGE: Final = " or ".join(", ".join(ProjectChange.__struct_fields__).rsplit(", ", 1)) + ": one of them is required"


class ProjectContext(msgspec.Struct, frozen=True):
    """The accounts and the keys."""

    options: EdgeOptions
    projects: Projects
    models: Models
    project_keys: Authenticator[Principal]
    changed_keys: ChangedKeys


@operation("GET /project", key=PROJECT_KEY, answers=json_answer("The project.", barn=BARN), faults=FAULTS)
async def read_project(call: Call, context: ProjectContext) -> Reply:
    """Read the project.

    The project of the key: its plan, its jobs' usage this month, how long audio is kept, and a redacted key.
    """
    principal = await context.project_keys.authenticate(call)
    return await _report(context, principal)


@operation(
    "PATCH /project",
    key=PROJECT_KEY,
    bodies=json_body(
        hour=ProjectChange(3600),
        default=ProjectChange(None),
        rule=ProjectChange(sound_rule=SoundRule(2, 3)),
        embeddings=ProjectChange(keep_embeddings=True),
    ),
    answers=json_answer("The project.", barn=BARN),
    faults=lambda: (
        fault_of(decode, _CHANGE, b"[]"),
        BadRequest(NO_CHANGE),
        fault_of(check_keeping, -1, 86_400),
        *FAULTS,
    ),
)
async def change_project(call: Call, context: ProjectContext) -> Reply:
    """Change the project.

    Changes its choices for jobs and sessions created from now on; on other nodes within {key_cache_seconds} s. The
    audio of a job is kept for at most {longest_keep_audio_seconds} s, by default for {keep_audio_seconds} s.
    """
    principal = await context.project_keys.authenticate(call)
    body = decode(_CHANGE, await call.body(SMALL_BODY, holder_of(principal)))
    change = {name: value for name, value in msgspec.structs.asdict(body).items() if value is not UNSET}
    if not change:
        raise BadRequest(NO_CHANGE)
    check_keeping(change.get("keep_audio_seconds"), context.options.audio_retention_seconds)
    tags = [tag.name for model in context.models.in_use() for tag in model.tags or ()]
    check_tags("sound_rules", change.get("sound_rules", ()), tags)
    await context.projects.choose(principal.project, change)
    # The next job sent to this node sees the change; other nodes cache verdicts on keys for a while.
    context.changed_keys.project(principal.project)
    log.info("project changed", project=principal.project, change=body)
    return await _report(context, principal)


def check_keeping(seconds: int | None, longest: int) -> None:
    """Check for how many seconds audio is to be kept.

    Raises:
        BadRequest: longer than allowed, or negative.
    """
    if seconds is not None and not 0 <= seconds <= longest:
        raise BadRequest(f"keep_audio_seconds: must be null or 0 to {longest}, the operator's limit")


async def _report(context: ProjectContext, principal: Principal) -> Reply:
    account = await context.projects.account(principal.project)
    keeping = context.options.keep_audio_seconds, context.options.audio_retention_seconds
    return json_reply(report_of(account, *keeping))


@operation(
    "POST /project/key",
    key=PROJECT_KEY,
    answers=json_answer(
        "The key.",
        key=NewKey("esp_0123456789abcdefghijklmnopqrstuv"),
        headers={"Cache-Control": "Do not cache: shown once."},
    ),
    faults=FAULTS,
)
async def rotate_key(call: Call, context: ProjectContext) -> Reply:
    """Issue a new key of the project.

    It is shown once. Send the key itself, not a session token. The old key stops here at once, on other nodes within
    {key_cache_seconds} s; so do its session tokens, links and open streams.
    """
    principal = await context.project_keys.authenticate(call)
    key = await context.projects.renew_key(context.project_keys.key(call))
    context.changed_keys.project(principal.project, ended=True)
    log.info("project key rotated", project=principal.project)
    return once_reply(NewKey(key))


@operation(
    "GET /project/usage",
    key=PROJECT_KEY,
    parameters=(
        Parameter("since", "query", date, f"The first day, by default {DAYS - 1} before the last.", example=SHOWN),
        Parameter("until", "query", date, "The last day, by default today (UTC).", example=SHOWN),
    ),
    answers=json_answer("The usage.", november=USAGE),
    faults=lambda: (
        fault_of(days_of, {"until": "yesterday"}),
        fault_of(days_of, {"since": "2026-11-23", "until": "2026-11-22"}),
        *FAULTS,
    ),
)
async def read_daily_usage(call: Call, context: ProjectContext) -> Reply:
    """Read the usage of the project.

    By day (UTC) and service, for at most {MOST_DAYS} days.
    """
    principal = await context.project_keys.authenticate(call)
    since, until = days_of(query_parameters(call.scope))
    rows = await context.projects.daily_usage(principal.project, day_ms(since), day_ms(until) + DAY_MS)
    return json_reply(ShownUsage(since, until, [UsageRow.of(row) for row in rows]))


@operation(
    "GET /models",
    key=Key("projectKey", optional=True),
    answers=json_answer("The sound model for new sessions first.", one=MODELS),
    faults=(500,),
)
async def models_in_use(call: Call, context: ProjectContext) -> Reply:
    """List the models in use.

    The models in use; for the sound model also each sound's operating point and its figures there. A step of
    sensitivity moves the logit of each point by `sensitivity_logits`: up for fewer reports. Without a project's key
    only models that come with the service are listed.
    """
    keyed = bool(call.header(PROJECT.header))
    if keyed:
        await context.project_keys.authenticate(call)
    shown = [model for model in context.models.in_use() if keyed or model.shipped]
    return json_reply(ModelList(shown, round(STEP * STEPS_PER_SENSITIVITY, 6)))


def days_of(query: dict[str, str]) -> tuple[date, date]:
    """Return the first and the last day of the query.

    Raises:
        BadRequest: one is not a day, or they are out of order or too far apart.
    """
    until = read_date(query, "until", datetime.now(UTC).date())
    since = read_date(query, "since", until - timedelta(days=min(DAYS - 1, until.toordinal() - 1)))
    if not 0 <= (until - since).days < MOST_DAYS:
        raise BadRequest(f"since: must be a day up to {MOST_DAYS - 1} days before until")
    return since, until
