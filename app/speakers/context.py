"""What the operations of the speaker interface work with."""

from __future__ import annotations

import msgspec

from app.http.authentication import Authenticator
from app.http.metrics import Meters
from app.http.uploads import Uploads
from topics.ports.speakers import Speakers


class SpeakerContext(msgspec.Struct, frozen=True):
    """The speakers of organizations, whose ids the organization keys speak for."""

    speakers: Speakers
    organization_keys: Authenticator[str]
    meters: Meters
    uploads: Uploads
