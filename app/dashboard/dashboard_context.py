"""The ports that the dashboard's own operations use."""

import msgspec

from app.identity.authentication import Authenticator
from app.identity.keys import KeyRateLimiter
from topics.ports.directory import Principal
from topics.ports.sign_ins import SignIns


class DashboardContext(msgspec.Struct, frozen=True):
    """Signing in by links, and signing out. What the pages show comes from the other parts of the interface."""

    sign_ins: SignIns
    tries: KeyRateLimiter
    project_keys: Authenticator[Principal]
    organization_keys: Authenticator[str]
