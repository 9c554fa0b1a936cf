"""Evaluates the rules of a project over the windows of a session.

A pure function of the windows, the notes of the source, the times and the row `Watched`: the same in any split of the
windows, and after a restart with the last row. What a rule looks for "holds" in some windows; windows in which it holds
with pauses of at most `gap` are a run, and a run makes one alarm, once it has lasted for `duration`.

The row changes at edges alone: where a run begins, pauses, goes on or ends, and at an alarm. In between, what it says
of the last window is so in all windows since.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, time
from functools import lru_cache
from itertools import compress, takewhile
from operator import gt
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from topics import scores
from topics.alarms.alarms import Alarm, Delivery
from topics.alarms.rules import MOST_A_MINUTE, AlarmRule, StoredRule, zone_of
from topics.alarms.tags import Classes, expanded
from topics.sessions.capture import CaptureTime, SourceNote
from topics.sessions.records import Opened
from topics.times import DAY_MS

#: Returns when the audio at a position (ms) was captured.
TimeOf = Callable[[int], CaptureTime]

#: No stored score is above it.
NEVER: Final = 255
MINUTE_MS: Final = 60_000
#: Times (ms) that a calendar has in each zone.
EARLIEST_MS, LATEST_MS = DAY_MS, 253_402_300_800_000 - 2 * DAY_MS


class Standing(msgspec.Struct, frozen=True, array_like=True):
    """How far a rule came in a session; positions in ms of audio."""

    revision: int
    #: Where the run began, None without one.
    since: int | None = None
    #: Where its pause began; None if it holds in the last window.
    until: int | None = None
    #: The run has made its alarm.
    done: bool = False
    #: The last alarm: its position, Unix time (ms), day and event.
    alarm_ms: int | None = None
    alarm_at: int = 0
    day: int = 0
    event: str = ""
    #: A minute of audio, its alarms, and the alarms left out since the last one.
    minute: int = -1
    count: int = 0
    left_out: int = 0


class Watched(msgspec.Struct, frozen=True, array_like=True):
    """How far the rules of a session came; its row is written with each alarm."""

    #: Windows below it were evaluated.
    to: int = 0
    #: Sequence of the next alarm: a row with this one or a higher one was not made yet.
    next: int = 0
    #: Notes below it were evaluated.
    notes: int = 0
    #: By the id of the rule; without those that stand at their beginning.
    rules: dict[str, Standing] = {}

    def changes(self, before: "Watched") -> dict[str, Standing]:
        """Return the standings that are not those of an earlier state."""
        ended = {id: Standing(then.revision) for id, then in before.rules.items() if id not in self.rules}
        return ended | {id: now for id, now in self.rules.items() if before.rules.get(id) != now}

    def changed(self, changes: Mapping[str, Standing]) -> "Watched":
        """Return the state with such standings."""
        return msgspec.structs.replace(self, rules={**self.rules, **changes})


class Heard(NamedTuple):
    """Consecutive windows of a session, and the notes of its source that come before, between or after them."""

    #: Number of the first window.
    first: int
    #: Packed scores (`topics.scores`), window by window.
    scores: bytes
    #: Level (dBFS) of each window, None if unknown; () if none is known.
    levels: Sequence[float | None] = ()
    notes: Sequence[SourceNote] = ()


class Rule:
    """A rule for a session whose model has its tags."""

    def __init__(self, stored: StoredRule, limits: Sequence[tuple[int, int]]) -> None:
        """`limits` are places of tags, each with the stored score above which it is heard."""
        self.id, self.revision, self.rule = stored.id, stored.revision, stored.rule
        self.limits = limits
        rule = stored.rule
        #: In ms.
        self.duration, self.gap = round(1000 * rule.duration), round(1000 * rule.gap)
        self.cooldown = round(1000 * rule.cooldown)
        #: It must be looked at in each window, also if none of its tags is heard.
        self.is_restless = rule.when in ("absent", "loud")
        self.fresh = Standing(stored.revision)
        self.zone = zone_of(rule.during.zone) if rule.during is not None else ZoneInfo("UTC")
        self.bounds = None if rule.during is None else rule.during.bounds

    def is_time(self, at: CaptureTime) -> bool:
        """Return whether the rule holds at a time of day."""
        if self.bounds is None:
            return True
        begins, ends = self.bounds
        now = time_of_day(at.at_ms // MINUTE_MS, self.zone)
        return begins <= now < ends if begins < ends else now >= begins or now < ends


class Watch:
    """The rules of a project for one session, and what they need to know of it."""

    def __init__(
        self,
        session: str,
        opened: Opened,
        predicts: bool,
        rules: Sequence[StoredRule],
        tags: Sequence[str],
        classes: Classes,
    ) -> None:
        """Leave out rules that are off, for other sources, or for tags that the model lacks.

        `tags` are those of the session's model, own sounds last. Windows of a session that `predicts` do not overlap.
        """
        self.session, self.opened = session, opened
        self.window_ms, self.hop_ms = opened.window_ms, opened.window_ms if predicts else opened.hop_ms
        self.tags = tags
        self.sensitivities = [opened.tags_sensitivity.get(tag, opened.default_sensitivity) for tag in tags]
        self.rules = list(self._compiled(rules, classes))
        #: For each tag the ids of rules with their limits, and the lowest limit.
        self.limits: list[list[tuple[str, int]]] = [[] for _ in tags]
        for rule in self.rules:
            for place, lower in rule.limits:
                self.limits[place].append((rule.id, lower))
        self.lowest = bytes(min((lower for _, lower in some), default=NEVER) for some in self.limits)
        self.restless = [one for one in self.rules if one.is_restless]

    def _compiled(self, rules: Sequence[StoredRule], classes: Classes) -> Iterator[Rule]:
        place = {tag: number for number, tag in enumerate(self.tags)}
        for stored in rules:
            rule = stored.rule
            if not (rule.enabled and fits(rule, self.opened)):
                continue
            names = expanded(rule.tags, place, classes) if rule.when in ("heard", "absent") else ()
            limits = [(place[name], limit(rule.probability, self.sensitivities[place[name]])) for name in names]
            if limits or rule.when in ("loud", "source"):
                yield Rule(stored, limits)

    def start_ms(self, window: int) -> int:
        return window * self.hop_ms

    def end_ms(self, window: int) -> int:
        return window * self.hop_ms + self.window_ms


def fits(rule: AlarmRule, opened: Opened) -> bool:
    """Return whether a rule holds for a session: a stream with its source and labels."""
    return (
        opened.kind == "stream"
        and rule.source in (None, opened.file_name)
        and rule.labels.items() <= opened.metadata.items()
    )


def needs_level(rules: Sequence[StoredRule]) -> bool:
    """Return whether a rule needs the level of windows."""
    return any(one.rule.enabled and one.rule.level is not None for one in rules)


@lru_cache(1024)
def limit(probability: float, sensitivity: int) -> int:
    """Return the highest stored score that is shown with less than a probability."""
    return sum(scores.probability(stored, sensitivity) < probability for stored in range(256)) - 1


def evaluate(
    watch: Watch, before: Watched, heard: Heard, time_of: TimeOf, made_at: int
) -> tuple[Watched | None, list[Alarm]]:
    """Return the state after the windows and notes, None if nothing changed, and the alarms, made at a log time (ms).

    Windows below `before.to` and notes below `before.notes` were evaluated, and are skipped.
    """
    if not (before.rules or watch.restless or heard.notes):
        count = len(heard.scores) // len(watch.tags)
        if not any(map(gt, heard.scores, count * watch.lowest)):
            return None, []
    evaluation = _Evaluation(watch, before, heard, time_of, made_at)
    evaluation.run()
    return evaluation.after(), evaluation.alarms


class _Found(NamedTuple):
    """What may become an alarm: in which window or note, from where (ms) to where, and when."""

    number: int
    start_ms: int
    end_ms: int
    begins: CaptureTime
    ends: CaptureTime
    note: SourceNote | None = None


class _Evaluation:
    """One call of `evaluate`."""

    def __init__(self, watch: Watch, before: Watched, heard: Heard, time_of: TimeOf, made_at: int) -> None:
        self._watch, self._before, self._heard = watch, before, heard
        self._end = heard.first + len(heard.scores) // len(watch.tags)
        self._time_of, self._made_at = time_of, made_at
        #: Of the rules that do not stand at their beginning.
        self._standings = dict(before.rules)
        self._is_changed = False
        self._notes = before.notes
        self.alarms: list[Alarm] = []

    def run(self) -> None:
        first, watch = max(self._heard.first, self._before.to), self._watch
        notes = [note for note in self._heard.notes if note.number >= self._before.notes]
        for window in range(first, self._end):
            while notes and notes[0].window <= window:
                self._take_note(notes.pop(0))
            row = self._row(window)
            audible = compress(enumerate(row), map(gt, row, watch.lowest))
            heard = {rule for place, score in audible for rule, limit in watch.limits[place] if score > limit}
            if heard or self._standings or watch.restless:
                for rule in watch.rules:
                    if rule.id in heard or rule.is_restless or rule.id in self._standings:
                        self._take(rule, window, rule.id in heard)
        for note in takewhile(lambda note: note.window <= self._end, notes):
            self._take_note(note)

    def _row(self, window: int) -> bytes:
        """Return the scores of a window."""
        tags = len(self._watch.tags)
        return self._heard.scores[(window - self._heard.first) * tags :][:tags]

    def after(self) -> Watched | None:
        """Return the new state, None if nothing changed."""
        if not self._is_changed:
            return None
        standing = ((one, self._standing(one)) for one in self._watch.rules)
        rules = {one.id: now for one, now in standing if now != one.fresh}
        if rules == self._before.rules and not self.alarms:
            return None
        sequence = self._before.next + len(self.alarms)
        return Watched(max(self._end, self._before.to), sequence, self._notes, rules)

    def _standing(self, rule: Rule) -> Standing:
        now = self._standings.get(rule.id)
        return now if now is not None and now.revision == rule.revision else rule.fresh

    def _change(self, rule: Rule, **changes: Any) -> None:
        self._standings[rule.id] = msgspec.structs.replace(self._standing(rule), **changes)
        self._is_changed = True

    # --- windows ----------------------------------------------------------------------------------------------------

    def _take(self, rule: Rule, window: int, is_heard: bool) -> None:
        """Take a rule over a window in which one of its tags is heard or not."""
        now, start, end = self._standing(rule), self._watch.start_ms(window), self._watch.end_ms(window)
        since, until, done = now.since, now.until, now.done
        if self._holds(rule, window, is_heard):
            if since is None or (until is not None and start - until > rule.gap):
                since, done = start, False
            until = None
            if not done and end - since >= rule.duration:
                done = self._alarm(rule, _Found(window, since, end, self._time_of(since), self._time_of(end)))
        elif since is not None:
            until = self._watch.end_ms(window - 1) if until is None else until
            if rule.rule.when == "absent" or start + self._watch.hop_ms - until > rule.gap:
                since, until, done = None, None, False
        if (since, until, done) != (now.since, now.until, now.done):
            self._change(rule, since=since, until=until, done=done)

    def _holds(self, rule: Rule, window: int, is_heard: bool) -> bool:
        """Return whether what a rule looks for holds in a window."""
        if rule.rule.when == "absent":
            holds = not is_heard
        elif rule.rule.level is None:
            holds = is_heard
        else:
            level = self._level(window)
            holds = (is_heard or rule.rule.when == "loud") and level is not None and level >= rule.rule.level
        if rule.bounds is None or not holds:
            return holds
        return rule.is_time(self._time_of(self._watch.start_ms(window)))

    def _level(self, window: int) -> float | None:
        place = window - self._heard.first
        return self._heard.levels[place] if place < len(self._heard.levels) else None

    # --- notes ------------------------------------------------------------------------------------------------------

    def _take_note(self, note: SourceNote) -> None:
        """Have the rules for sources look at a note; its position is that of the window after it."""
        self._notes = note.number + 1
        position, at = self._watch.start_ms(note.window), CaptureTime(note.at_ms, note.told)
        for rule in self._watch.rules:
            if note.event in rule.rule.events and rule.is_time(at):
                self._alarm(rule, _Found(note.number, position, position, at, at, note))

    # --- alarms -----------------------------------------------------------------------------------------------------

    def _alarm(self, rule: Rule, found: _Found) -> bool:
        """Make an alarm, or leave it out for those of its minute; return False if the rule may not make one yet."""
        now, at = self._standing(rule), found.ends.at_ms
        event = "" if found.note is None else found.note.event
        day = local(at, rule.zone).toordinal() if rule.rule.first_of_day else 0
        if now.alarm_ms is not None:
            # Audio pauses with its stream, and the clock of a client may be wrong.
            passed = max(found.end_ms - now.alarm_ms, at - now.alarm_at)
            if (event == now.event and passed < rule.cooldown) or (rule.rule.first_of_day and day == now.day):
                return False
        minute = found.end_ms // MINUTE_MS
        count = now.count if now.minute == minute else 0
        if count >= MOST_A_MINUTE:
            self._change(rule, left_out=now.left_out + 1)
            return True
        self.alarms.append(self._made(rule, found, now.left_out))
        self._change(
            rule,
            alarm_ms=found.end_ms,
            alarm_at=at,
            day=day,
            event=event,
            minute=minute,
            count=count + 1,
            left_out=0,
        )
        return True

    def _made(self, rule: Rule, found: _Found, left_out: int) -> Alarm:
        opened, note = self._watch.opened, found.note
        return Alarm(
            session=self._watch.session,
            sequence=self._before.next + len(self.alarms),
            project=opened.project,
            rule=rule.id,
            rule_name=rule.rule.name,
            source=opened.file_name,
            labels=opened.metadata,
            window=found.number,
            what=rule.rule.when if note is None else note.event,
            begins_at=found.begins.at_ms,
            ends_at=found.ends.at_ms,
            told=found.begins.told,
            start_ms=found.start_ms,
            end_ms=found.end_ms,
            made_at=self._made_at,
            tags=self._tags(rule, found.number) if rule.rule.when == "heard" else (),
            level=self._level(found.number) if note is None and rule.rule.level is not None else None,
            reason=None if note is None else note.reason,
            left_out=left_out,
            deliveries=tuple(Delivery(one, at=self._made_at) for one in dict.fromkeys(rule.rule.destinations)),
        )

    def _tags(self, rule: Rule, window: int) -> tuple[tuple[str, float], ...]:
        """Return the tags of a rule that are heard in a window, the most probable first."""
        row, watch = self._row(window), self._watch
        found = [
            (watch.tags[place], scores.probability(row[place], watch.sensitivities[place]))
            for place, limit in rule.limits
            if row[place] > limit
        ]
        return tuple(sorted(found, key=lambda one: (-one[1], one[0])))


def local(at_ms: int, zone: ZoneInfo) -> datetime:
    """Return a Unix time (ms) as a zone's; one that no calendar has as the first or last day that it has."""
    return datetime.fromtimestamp(min(max(at_ms, EARLIEST_MS), LATEST_MS) / 1000, zone)


@lru_cache(4096)
def time_of_day(minute: int, zone: ZoneInfo) -> time:
    """Return the time of day in a zone at a minute since 1970."""
    return local(minute * MINUTE_MS, zone).time()
