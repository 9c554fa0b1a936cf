"""What the operations of the operator's interface work with."""

from __future__ import annotations

import msgspec

from app.admin.nodes import NodeList
from app.http.metrics import Meters
from topics.ports.administration import Administration


class AdminContext(msgspec.Struct, frozen=True):
    """The accounts, the nodes, and the operator's key to them."""

    administration: Administration
    nodes: NodeList
    meters: Meters
    #: Digest of the key (`topics.apikeys.digest`).
    key: bytes
