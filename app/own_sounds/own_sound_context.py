"""What the operations of own sounds need."""

import msgspec

from app.http.turns import LoopTurns
from app.identity.authentication import Authenticator
from app.identity.changed_keys import ChangedKeys
from topics.ports.directory import Principal
from topics.ports.jobs import Jobs
from topics.ports.own_sounds import OwnSoundStore
from topics.ports.sessions import Sessions


class OwnSoundContext(msgspec.Struct, frozen=True):
    """The sounds, the keys, and the sessions and jobs that examples are taken from."""

    sounds: OwnSoundStore
    project_keys: Authenticator[Principal]
    changed_keys: ChangedKeys
    sessions: Sessions
    jobs: Jobs
    turns: LoopTurns
