"""Rules of when a sound is on, as requests state them: for a session, or for all of a project."""

from collections.abc import Collection, Iterable, Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from topics.errors import BadRequest
from topics.sessions.sounds import DEFAULT, SoundRule


class SoundRuleFields(msgspec.Struct, frozen=True):
    """When a sound is on, for the events `sound.started` and `sound.ended`."""

    windows: Annotated[
        Annotated[int, Meta(ge=1, le=60)],
        Meta(description="It is on when this many of the last `of` windows report it."),
    ] = DEFAULT.windows
    of: Annotated[Annotated[int, Meta(ge=1, le=60)], Meta(description="At least `windows`.")] = DEFAULT.of
    margin: Annotated[
        Annotated[float, Meta(ge=0, le=600)],
        Meta(description="Seconds from the last window that reports it until it is off."),
    ] = DEFAULT.margin_ms / 1000

    def rule(self, name: str) -> SoundRule:
        """Return the rule.

        Raises:
            BadRequest: more windows than there are; names the field.
        """
        if self.windows > self.of:
            raise BadRequest(f"{name}: windows is {self.windows}, must be at most of ({self.of})")
        return SoundRule(self.windows, self.of, round(1000 * self.margin))


def shown_rule(rule: SoundRule) -> SoundRuleFields:
    """Return a rule as answers show it."""
    return SoundRuleFields(rule.windows, rule.of, rule.margin_ms / 1000)


def rule_of(fields: SoundRuleFields | None) -> SoundRule | None:
    """Return the rule in the field `sound_rule`.

    Raises:
        BadRequest: the rule is invalid.
    """
    return None if fields is None else fields.rule("sound_rule")


def rules_of(by_tag: Mapping[str, SoundRuleFields] | None, official: Iterable[str]) -> dict[str, SoundRule] | None:
    """Return the rules in the field `sound_rules`.

    Raises:
        BadRequest: a rule is invalid, or its tag is unknown.
    """
    if by_tag is None:
        return None
    check_tags("sound_rules", by_tag, official)
    return {name: fields.rule(f"sound_rules.{name[:64]}") for name, fields in by_tag.items()}


def check_tags(field: str, names: Collection[str], official: Iterable[str]) -> None:
    """Check the tags that a field names.

    Raises:
        BadRequest: a tag is unknown.
    """
    if names and (unknown := sorted(set(names) - set(official))):
        raise BadRequest(f"{field}: unknown tag {unknown[0][:64]!r}")
