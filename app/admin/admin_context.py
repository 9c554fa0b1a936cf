"""What the operations of the operator's interface need."""

import msgspec

from app.admin.nodes import NodeList
from app.http.metrics import Meters
from app.identity.changed_keys import ChangedKeys
from app.identity.keys import KeyRateLimiter
from topics.ports.administration import LocalAdministration


class AdminContext(msgspec.Struct, frozen=True):
    """The accounts, the nodes, and the operator's key to them."""

    administration: LocalAdministration
    nodes: NodeList
    meters: Meters
    changed_keys: ChangedKeys
    tries: KeyRateLimiter
    #: Digest of the key (`topics.apikeys.digest`).
    key: bytes
