import msgspec

from app.identity.authentication import Authenticator
from app.identity.changed_keys import ChangedKeys
from topics.ports.directory import Principal
from topics.ports.models import Models
from topics.ports.projects import Projects


class ProjectContext(msgspec.Struct, frozen=True):
    """The accounts and the keys."""

    projects: Projects
    models: Models
    project_keys: Authenticator[Principal]
    changed_keys: ChangedKeys
    #: How long the audio of jobs is kept: by default, and at most.
    keep_audio_ms: int = 0
    longest_keep_audio_ms: int = 0
