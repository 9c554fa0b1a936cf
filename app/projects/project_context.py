import msgspec

from app.identity.authentication import Authenticator
from app.identity.changed_keys import ChangedKeys
from app.options import EdgeOptions
from topics.ports.directory import Principal
from topics.ports.models import Models
from topics.ports.projects import Projects


class ProjectContext(msgspec.Struct, frozen=True):
    """The accounts and the keys."""

    options: EdgeOptions
    projects: Projects
    models: Models
    project_keys: Authenticator[Principal]
    changed_keys: ChangedKeys
