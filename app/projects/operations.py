"""Operations on the project of the key."""

from datetime import UTC, date, datetime, timedelta
from typing import Final

import msgspec
import structlog
from msgspec import UNSET, UnsetType

from app.http.bodies import SMALL_BODY, decode
from app.http.call import Call
from app.http.queries import query_parameters, read_date
from app.http.replies import Reply, json_reply, once_reply
from app.http.turns import holder_of
from app.identity.keys import PROJECT
from app.projects.project_bodies import ModelList, NewKey, ProjectChange, ProjectReport, ShownUsage, UsageRow
from app.projects.project_context import ProjectContext
from app.sound_rules import rule_of, rules_of
from topics.errors import BadRequest
from topics.ports.directory import Principal
from topics.ports.projects import ProjectChoices
from topics.scores import STEP, STEPS_PER_SENSITIVITY
from topics.times import DAY_MS, day_ms

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

#: Days of usage in one answer, at most and by default.
MOST_DAYS: Final = 366
DAYS: Final = 31
NO_CHANGE: Final = "keep_audio_seconds, sound_rule, sound_rules or keep_embeddings: one of them is required"
_CHANGE: Final = msgspec.json.Decoder(ProjectChange)


async def read_project(call: Call, context: ProjectContext) -> Reply:
    """GET /api/v1/project: the project, its plan and its key, with only the ends shown."""
    principal = await context.project_keys.authenticate(call)
    return await _report(context, principal)


async def change_project(call: Call, context: ProjectContext) -> Reply:
    """PATCH /api/v1/project: choices for future jobs and sessions; existing ones keep theirs."""
    principal = await context.project_keys.authenticate(call)
    change = decode(_CHANGE, await call.body(SMALL_BODY, holder_of(principal)))
    if change == ProjectChange():
        raise BadRequest(NO_CHANGE)
    await context.projects.choose(principal.project, _choices(context, change))
    # The next job sent to this node sees the change; other nodes cache verdicts on keys for a while.
    context.changed_keys.project(principal.project)
    log.info("project changed", project=principal.project, change=change)
    return await _report(context, principal)


def _choices(context: ProjectContext, change: ProjectChange) -> ProjectChoices:
    check_keeping(change.keep_audio_seconds, context.options.longest_keep_audio_ms // 1000)
    tags = [tag.name for model in context.models.in_use() for tag in model.tags or ()]
    return ProjectChoices(
        keep_audio_seconds=change.keep_audio_seconds,
        rule=UNSET if change.sound_rule is UNSET else rule_of(change.sound_rule),
        rules_by_name=UNSET if change.sound_rules is UNSET else rules_of(change.sound_rules, tags) or {},
        keep_embeddings=change.keep_embeddings,
    )


def check_keeping(seconds: int | UnsetType | None, longest: int) -> None:
    """Check for how many seconds audio is to be kept.

    Raises:
        BadRequest: longer than allowed, or negative.
    """
    if isinstance(seconds, int) and not 0 <= seconds <= longest:
        raise BadRequest(f"keep_audio_seconds: must be null or 0 to {longest}, the operator's limit")


async def _report(context: ProjectContext, principal: Principal) -> Reply:
    account = await context.projects.account(principal.project)
    keeping = context.options.keep_audio_ms // 1000, context.options.longest_keep_audio_ms // 1000
    return json_reply(ProjectReport.of(account, *keeping))


async def rotate_key(call: Call, context: ProjectContext) -> Reply:
    """POST /api/v1/project/key: create a new key, shown only now, and revoke the old one, which the request sends."""
    principal = await context.project_keys.authenticate(call)
    key = await context.projects.renew_key(context.project_keys.key(call))
    context.changed_keys.project(principal.project, ended=True)
    log.info("project key rotated", project=principal.project)
    return once_reply(NewKey(key))


async def read_daily_usage(call: Call, context: ProjectContext) -> Reply:
    """GET /api/v1/project/usage?since=&until=: by day and service, by default for the last month."""
    principal = await context.project_keys.authenticate(call)
    since, until = days_of(query_parameters(call.scope))
    rows = await context.projects.daily_usage(principal.project, day_ms(since), day_ms(until) + DAY_MS)
    return json_reply(ShownUsage(since, until, [UsageRow.of(row) for row in rows]))


async def models_in_use(call: Call, context: ProjectContext) -> Reply:
    """GET /api/v1/models: what the models in use detect, and how well; without a key only the shipped models."""
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
