"""When a sound is on, as requests say it: of a session, or of all that a project opens."""

from collections.abc import Collection, Iterable, Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from topics.errors import BadRequest
from topics.sessions.sounds import DEFAULT, SoundRule


class SoundRuleFields(msgspec.Struct, frozen=True):
    """When a sound is on, for the events `sound.started` and `sound.ended`."""

    windows: Annotated[
        Annotated[int, Meta(ge=1, le=60)], Meta(description="It is on when so many of the last `of` windows report it.")
    ] = DEFAULT.windows
    of: Annotated[Annotated[int, Meta(ge=1, le=60)], Meta(description="At least `windows`.")] = DEFAULT.of
    margin: Annotated[
        Annotated[float, Meta(ge=0, le=600)],
        Meta(description="Seconds after the last window that reports it, at which it is off."),
    ] = DEFAULT.margin_ms / 1000

    def rule(self, name: str) -> SoundRule:
        """Return the rule.

        Raises:
            BadRequest: more windows than there are; names the field.
        """
        if self.windows > self.of:
            raise BadRequest(f"{name}: windows is {self.windows}, of is {self.of}, which is less")
        return SoundRule(self.windows, self.of, round(1000 * self.margin))


def shown_rule(rule: SoundRule) -> SoundRuleFields:
    """Return a rule as it is shown."""
    return SoundRuleFields(rule.windows, rule.of, rule.margin_ms / 1000)


def rule_of(fields: SoundRuleFields | None) -> SoundRule | None:
    """Return the rule in the field `sound_rule`.

    Raises:
        BadRequest: it cannot be.
    """
    return None if fields is None else fields.rule("sound_rule")


def rules_of(by_tag: Mapping[str, SoundRuleFields] | None, official: Iterable[str]) -> dict[str, SoundRule] | None:
    """Return the rules in the field `sound_rules`.

    Raises:
        BadRequest: one cannot be, or is for a tag that is not known.
    """
    if by_tag is None:
        return None
    check_tags("sound_rules", by_tag, official)
    return {name: fields.rule(f"sound_rules.{name[:64]}") for name, fields in by_tag.items()}


def check_tags(field: str, names: Collection[str], official: Iterable[str]) -> None:
    """Check what a field says of tags.

    Raises:
        BadRequest: one is not known.
    """
    if names and (unknown := sorted(set(names) - set(official))):
        raise BadRequest(f"{field}: unknown tag {unknown[0][:64]!r}")
