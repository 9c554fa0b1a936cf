"""Detection of a recording's format."""

from typing import Final, Protocol

import msgspec

from topics.media import Media

#: Probes that run at a time; the others wait in the order in which they came.
MAX_PROBES: Final = 4


class ProbeResult(msgspec.Struct, frozen=True):
    """Facts from the first second of a recording."""

    #: In the form that `topics.media.parse` accepts.
    content_type: str
    #: Container, or "raw".
    format: str
    #: Hz.
    rate: int
    channels: int
    #: The length (ms) claimed by the container's header, if any.
    length_ms: int | None = None


class Prober(Protocol):
    """Probes untrusted recordings in a process that they may crash."""

    async def probe(self, file: int, declared: Media | None) -> ProbeResult:
        """Detect the container by content and decode the first second; `file` is a descriptor of a seekable file.

        The position of the file changes. Pass `declared` for raw PCM only, which cannot be detected.

        Raises:
            AudioTooLong: the recording is over the limit for analysis.
            AudioError: the recording is not audio that can be analysed.
            Unavailable: no child process is available now, or the file cannot be read.
        """
