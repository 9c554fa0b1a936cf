"""What the dashboard's own operations work with."""

from __future__ import annotations

import msgspec

from topics.ports.sign_ins import SignIns


class DashboardContext(msgspec.Struct, frozen=True):
    """The links that sign in; what pages show comes through the other parts of the interface."""

    sign_ins: SignIns
