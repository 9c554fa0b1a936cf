"""What the operations of the dashboard need."""

import msgspec

from app.identity.authentication import Authenticator
from app.identity.keys import KeyRateLimiter
from topics.ports.directory import Principal
from topics.ports.sign_ins import SignIns


class DashboardContext(msgspec.Struct, frozen=True):
    """Sign-in by links, and sign-out. The pages get their contents from the other parts of the interface."""

    sign_ins: SignIns
    tries: KeyRateLimiter
    project_keys: Authenticator[Principal]
    organization_keys: Authenticator[str]
