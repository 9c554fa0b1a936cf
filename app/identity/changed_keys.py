"""Invalidates verdicts on keys that this node changes or ends, for requests and open streams."""

import msgspec

from app.identity.keys import Keyring
from topics.ports.directory import AudioLink, Principal


class ChangedKeys(msgspec.Struct, frozen=True):
    """The keyrings of this node."""

    projects: Keyring[Principal]
    organizations: Keyring[str]
    audio: Keyring[AudioLink]

    def project(self, project: str, ended: bool = False) -> None:
        """Invalidate the verdicts on the keys, passes and links of a project; they may have `ended`."""
        self.projects.forget(lambda holder: holder.project == project, ended)
        self.audio.forget(lambda link: link.project == project, ended)

    def organization(self, organization: str, deleted: bool = False) -> None:
        """End an organization's keys; with `deleted` also its projects' keys."""
        self.organizations.forget(lambda holder: holder == organization, ended=True)
        if deleted:
            self.projects.forget(lambda holder: holder.organization == organization, ended=True)
            self.audio.forget(lambda link: link.organization == organization, ended=True)
