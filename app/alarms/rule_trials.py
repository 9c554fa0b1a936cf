"""Tries a rule on what a project's sessions heard on a day: on the stored windows, on all nodes."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from heapq import nlargest
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from app.alarms.alarm_bodies import SMOKE
from app.alarms.alarm_context import AlarmContext
from app.alarms.rules import rule_faults, rule_of
from app.cluster.lists import NOBODY, MissingPart, parts_of
from app.cluster.takeovers import FORWARDED
from app.days import DAY_PARAMETERS, Day, DayText, day_faults, parse_day, sessions_on, windows_between
from app.http.call import Call
from app.http.descriptions import json_answer, json_body, operation
from app.http.holder_quota import HolderQuota, Places
from app.http.queries import query_parameters
from app.http.replies import Reply, json_reply
from app.http.turns import holder_of
from app.shared_descriptions import BROKEN, PROJECT_KEY
from app.shown_alarms import ALARM, Found
from topics.alarms.alarms import Alarm
from topics.alarms.evaluation import Heard, Watch, Watched, evaluate, fits
from topics.alarms.rules import AlarmRule, StoredRule
from topics.errors import BadRequest, Unavailable
from topics.ports.sessions import SessionView
from topics.turns import Holder

#: Time limit of a trial on each node, turns of others included.
TRIAL_SECONDS: Final = 2.0
#: The most alarms in an answer.
MOST_SHOWN: Final = 200
#: Trials at a time, in total and of one project.
WAITING: Final = 16
PROJECT_WAITING: Final = 2
CROWDED: Final = f"{PROJECT_WAITING} rules of the project are being tried here; try again"
#: Windows that are evaluated in one turn.
SLICE: Final = 256
NO_LEVELS: Final = BadRequest("level: levels are not stored, so a rule with a level cannot be tried")
NO_NOTES: Final = BadRequest("when: what happened to sources on a day is not searched; try rules for sounds")


class Trial(msgspec.Struct, frozen=True):
    """The alarms that a rule would have made on a day."""

    day: DayText
    offset_minutes: int
    alarms: Annotated[Sequence[Found], Meta(description=f"The newest {MOST_SHOWN}, the newest first.")]
    total: Annotated[int, Meta(ge=0, description="How many there would have been.")]
    sessions: Annotated[int, Meta(ge=0, description="Sessions of this day that the rule is for.")]
    left_out: Annotated[int, Meta(ge=0, description="Sessions not searched to their end.")] = 0
    missing: MissingPart | UnsetType = UNSET


class Part(msgspec.Struct, frozen=True):
    """One node's part of a trial, as nodes exchange it."""

    partitions: frozenset[int]
    alarms: Sequence[Found] = ()
    total: int = 0
    sessions: int = 0
    left_out: int = 0


FOUND: Final = Found(**Found.fields(ALARM))  # type: ignore[arg-type]
TRIAL: Final = Trial("2026-11-22", 60, [FOUND], 1, 3)
_part: Final = msgspec.json.Decoder(Part)


@operation(
    "POST /alarm_rules/test",
    key=PROJECT_KEY,
    parameters=DAY_PARAMETERS,
    bodies=json_body(smoke=SMOKE),
    answers=json_answer(
        "What it would have made.",
        smoke=TRIAL,
        incomplete=msgspec.structs.replace(TRIAL, left_out=1, missing=MissingPart(21, 64)),
    ),
    faults=lambda: (
        *rule_faults(),
        NO_LEVELS,
        NO_NOTES,
        *day_faults(),
        Unavailable(NOBODY),
        Unavailable(CROWDED),
        *BROKEN,
    ),
)
async def try_alarm_rule(call: Call, context: AlarmContext) -> Reply:
    """Try a rule of alarms.

    On what the project's streams heard on a day. Nothing is stored or sent. A node spends {TRIAL_SECONDS:g} s at most:
    `left_out` is the number of sessions that it did not search to their end, the newest first.
    """
    principal = await context.project_keys.authenticate(call)
    holder, day = holder_of(principal), parse_day(query_parameters(call.scope))
    rule = await rule_of(call, context, principal)
    if rule.level is not None:
        raise NO_LEVELS
    if rule.when == "source":
        raise NO_NOTES
    if call.header(FORWARDED):
        return json_reply(await _own_part(context, holder, rule, day))
    urls = sorted(context.sessions.coverage().elsewhere)
    asked = parts_of(call, context.list.forwarder, urls, _part.decode, msgspec.json.encode(rule))
    own, others = await asyncio.gather(_own_part(context, holder, rule, day), asked)
    parts = [own, *others]
    covered = frozenset().union(*(part.partitions for part in parts))
    if not covered:
        raise Unavailable(NOBODY)
    total, sessions, left_out = (
        sum(getattr(part, name) for part in parts) for name in ("total", "sessions", "left_out")
    )
    partitions = context.sessions.coverage().partitions
    missing = partitions - len(covered)
    return json_reply(
        Trial(
            day.text,
            day.offset_minutes,
            _newest(found for part in parts for found in part.alarms),
            total,
            sessions,
            left_out,
            MissingPart(missing, partitions) if missing else UNSET,
        )
    )


async def _own_part(context: AlarmContext, holder: Holder, rule: AlarmRule, day: Day) -> Part:
    coverage = context.sessions.coverage()
    if not coverage.here:
        return Part(coverage.here)

    def concerns(view: SessionView) -> bool:
        return fits(rule, view.opened) and bool(_windows(view, day))

    made: list[Alarm] = []
    left_out = 0
    with context.trials.place(holder):
        until = time.monotonic() + TRIAL_SECONDS
        sessions = await sessions_on(day, context.sessions, context.turns, holder, concerns)
        for session, view in sessions:
            search = _Search(context, session, view, rule, _windows(view, day))
            with suppress(Unavailable):  # It was deleted meanwhile, or has moved.
                while search.left and time.monotonic() < until:
                    made += await context.turns.run(holder, search.step)
            left_out += bool(search.left)
    found = _newest(Found(**Found.fields(one)) for one in made)  # type: ignore[arg-type]
    return Part(coverage.here, found, len(made), len(sessions), left_out)


class _Search:
    """Evaluates a rule over windows of a session, some at a time."""

    def __init__(self, context: AlarmContext, session: str, view: SessionView, rule: AlarmRule, windows: range) -> None:
        self._context, self._session, self._view = context, session, view
        self._rule = StoredRule("", view.opened.project, 1, msgspec.structs.replace(rule, enabled=True))
        #: Windows that are left.
        self.left = windows
        self._state = Watched()
        #: By model.
        self._watches: dict[str, Watch] = {}

    def step(self) -> Sequence[Alarm]:
        """Evaluate some windows; return the alarms.

        Raises:
            Unavailable: the windows are not here.
        """
        made: list[Alarm] = []
        time_of = partial(self._context.sessions.time_of, self._session)
        first, stop = self.left.start, min(self.left.stop, self.left.start + SLICE)
        for windows in self._context.sessions.windows(self._session, first, stop - first):
            watch = self._watch(windows.model)
            state, alarms = evaluate(watch, self._state, Heard(first, windows.scores), time_of, 0)
            self._state = state or self._state
            made += alarms
            first += len(windows.scores) // len(watch.tags)
        if first < stop:
            raise Unavailable("the session's results are not all here yet")
        self.left = range(stop, self.left.stop)
        return made

    def _watch(self, model: str) -> Watch:
        if model not in self._watches:
            sessions, view = self._context.sessions, self._view
            self._watches[model] = Watch(
                self._session,
                view.opened,
                bool(view.head.predicts),
                [self._rule],
                sessions.tags(model),
                sessions.classes(),
            )
        return self._watches[model]


def trial_quota() -> HolderQuota:
    return HolderQuota(
        Places(PROJECT_WAITING, CROWDED),
        Places(WAITING // 2, CROWDED),
        Places(WAITING, f"{WAITING} rules are being tried here; try again"),
        round(TRIAL_SECONDS),
    )


def _windows(view: SessionView, day: Day) -> range:
    return windows_between(view, view.head.windows, day.begins, day.ends)


def _newest(found: Iterator[Found]) -> list[Found]:
    return nlargest(MOST_SHOWN, found, key=lambda one: one.begins_at)
