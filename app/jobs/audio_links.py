"""Links to the recordings of jobs, for players, which send no key: each is good for one job, and ends by itself."""

from __future__ import annotations

import struct
from typing import Final

from topics.errors import Unauthorized
from topics.signing import Signer

LINK_ENDED: Final = "the link has ended, or is of another job"
_END: Final = struct.Struct(">Q")


class AudioLinks:
    """Makes and judges the tokens of links: the end in seconds since 1970, signed with the job."""

    def __init__(self, secret: bytes) -> None:
        self._signer = Signer(secret, b"job audio", 16)

    def issue(self, job: str, end: int) -> str:
        """Return the token of a link to a job's audio."""
        return self._signer.seal(_END.pack(end), job.encode("ascii"))

    def check(self, job: str, token: str, now: float) -> None:
        """Raise Unauthorized where a token is not good for this job at this time."""
        body = self._signer.open(token, job.encode("ascii", "replace"))
        if body is None or _END.unpack(body)[0] <= now:
            raise Unauthorized(LINK_ENDED)
