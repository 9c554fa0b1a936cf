"""What the operations of the operator's interface work with."""

from __future__ import annotations

import msgspec

from app.http.metrics import Meters
from topics.ports.administration import Administration


class AdminContext(msgspec.Struct, frozen=True):
    """The accounts, and the operator's key to them."""

    administration: Administration
    meters: Meters
    #: Digest of the key (`topics.apikeys.digest`).
    key: bytes
