"""Invalidates verdicts on keys that this node changes, so that requests and open streams ask again."""

import msgspec

from app.identity.keys import Keyring
from topics.ports.directory import AudioLink, Principal


class ChangedKeys(msgspec.Struct, frozen=True):
    """The keyrings of this node."""

    projects: Keyring[Principal]
    organizations: Keyring[str]
    audio: Keyring[AudioLink]

    def project(self, project: str) -> None:
        """Invalidate the verdicts on the keys, passes and links of a project."""
        self.projects.forget(lambda holder: holder.project == project)
        self.audio.forget(lambda link: link.project == project)

    def organization(self, organization: str, deleted: bool = False) -> None:
        """Invalidate the verdicts on an organization's keys; with `deleted` also those on its projects' keys."""
        self.organizations.forget(lambda holder: holder == organization)
        if deleted:
            self.projects.forget(lambda holder: holder.organization == organization)
            self.audio.forget(lambda link: True)
