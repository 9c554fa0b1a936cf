"""What a recording is, found by looking into it."""

from __future__ import annotations

from typing import Protocol

import msgspec

from topics.media import Media


class ProbeResult(msgspec.Struct, frozen=True):
    """What was found in the first second of a recording."""

    #: As `topics.media.parse` reads it.
    content_type: str
    #: Container, or "raw".
    format: str
    #: Hz.
    rate: int
    channels: int
    #: What the container's header claims of the length, milliseconds; None where it does not know.
    length_ms: int | None = None


class Prober(Protocol):
    """Looks into recordings of strangers, in a process that may die of it."""

    async def probe(self, file: int, declared: Media | None) -> ProbeResult:
        """Find the container by content and decode the first second; `file` is a descriptor of a seekable file.

        `declared` is given for raw PCM alone, which nothing can recognise.

        Raises:
            AudioTooLong: it is longer than anything that is analysed.
            AudioError: it is no audio that can be analysed.
            Unavailable: the child process cannot be had now.
        """
