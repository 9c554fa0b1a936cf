"""Facts for clients about the models in use: tags and figures."""

from collections.abc import Sequence
from typing import Annotated, Literal, Protocol

import msgspec
from msgspec import Meta

Share = Annotated[float | None, Meta(description="0 to 1; null if there is nothing to count.")]


class TagFigures(msgspec.Struct, frozen=True):
    """How a tag did at its operating point, in labelled recordings."""

    clips: Annotated[int, Meta(description="Recordings with the sound.")]
    found: Annotated[int, Meta(description="Those of them with a correct report.")]
    reported: Annotated[int, Meta(description="Recordings in which it was reported at all.")]
    right: Annotated[int, Meta(description="Those of them that have it.")]
    recall: Share
    precision: Share
    average_precision: Share
    learnt: Annotated[bool, Meta(description="Learnt from these recordings, so figures are optimistic.")]


class TagFacts(msgspec.Struct, frozen=True):
    """A tag of a sound model."""

    name: str
    category: str
    point: Annotated[float, Meta(description="Score in (0, 1) from which it is reported at sensitivity 0.")]
    clips: Annotated[int, Meta(description="Recordings of the sound from which the point was chosen; 0: from others.")]
    figures: Annotated[TagFigures | None, Meta(description="Null if not measured.")]


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A model."""

    id: Annotated[str, Meta(description="`name@` and prefixes of hashes of what its scores depend on.")]
    kind: Literal["sound-events", "speaker-embedding", "speech-recognition"]
    name: str
    version: str
    licence: Annotated[str, Meta(description="SPDX.")]
    source: str
    sha256: Annotated[str, Meta(description="Of its weights.")]
    sample_rate: int
    window_seconds: Annotated[float | None, Meta(description="Length of a sound model's window.")] = None
    hop_seconds: Annotated[float | None, Meta(description="From one window of a session to the next.")] = None
    classes: Annotated[int | None, Meta(description="Of its graph; tags are made of these.")] = None
    how_measured: Annotated[str | None, Meta(description="Source of the `figures`.")] = None
    recordings: Annotated[int | None, Meta(description="How many were measured.")] = None
    tags: Sequence[TagFacts] = ()
    shipped: Annotated[bool, Meta(description="Comes with the service; only projects see others.")] = True


class Models(Protocol):
    """The models in use."""

    def in_use(self) -> Sequence[ModelFacts]:
        """Return the models, the sound model for new sessions first."""
