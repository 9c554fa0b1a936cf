"""Facts about a recording, found by looking into it."""

from typing import Protocol

import msgspec

from topics.media import Media


class ProbeResult(msgspec.Struct, frozen=True):
    """The findings from the first second of a recording."""

    #: As `topics.media.parse` reads it.
    content_type: str
    #: Container, or "raw".
    format: str
    #: Hz.
    rate: int
    channels: int
    #: The length that the container's header claims, milliseconds; None if it does not say.
    length_ms: int | None = None


class Prober(Protocol):
    """Looks into strangers' recordings, in a process that may die of it."""

    async def probe(self, file: int, declared: Media | None) -> ProbeResult:
        """Find the container by content and decode the first second; `file` is a descriptor of a seekable file.

        `declared` is given for raw PCM alone, which nothing can recognise.

        Raises:
            AudioTooLong: it is longer than anything that is analysed.
            AudioError: it is not audio that can be analysed.
            Unavailable: the child process cannot be had now.
        """
