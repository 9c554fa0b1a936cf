"""What a project chooses for its new sessions and jobs.

A field of `Choices` is all that a choice needs to be accepted, stored, shown and documented. A session or job copies
the choices when it opens (`topics.hearing.Hearing.choices`).
"""

from typing import Annotated

import msgspec
from msgspec import Meta


class SoundRule(msgspec.Struct, frozen=True):
    """When a sound is on."""

    windows: Annotated[
        Annotated[int, Meta(ge=1, le=60)],
        Meta(description="It is on when this many of the last `of` windows report it."),
    ] = 1
    of: Annotated[Annotated[int, Meta(ge=1, le=60)], Meta(description="At least `windows`.")] = 1
    margin: Annotated[
        Annotated[float, Meta(ge=0, le=600)],
        Meta(description="Seconds from the last window that reports it until it is off."),
    ] = 1.0

    def __post_init__(self) -> None:
        if self.windows > self.of:
            raise ValueError(f"windows is {self.windows}, must be at most of ({self.of})")

    @property
    def margin_ms(self) -> int:
        return round(1000 * self.margin)

    def horizon(self, hop_ms: int) -> int:
        """Return after how many windows without a sound its state can be dropped."""
        return max(self.of, -(-self.margin_ms // hop_ms))


class Choices(msgspec.Struct, frozen=True, omit_defaults=True):
    """The choices of a project, or of a session that has rules of its own."""

    keep_audio_seconds: Annotated[
        int | None,
        Meta(description="How long the audio of jobs is kept; 0: until they are done, null: the operator's default."),
    ] = None
    sound_rule: Annotated[
        SoundRule | None,
        Meta(description="When a sound is on in sessions opened from now on; null for the service's rule."),
    ] = None
    sound_rules: Annotated[
        dict[str, SoundRule],
        Meta(description="The same for single sounds, by name; replaces all their earlier rules."),
    ] = {}
    keep_embeddings: Annotated[
        bool,
        Meta(description="Keep what own sounds are learnt from with each window: 192 numbers of the second model."),
    ] = False
