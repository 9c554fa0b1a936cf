"""Invalidates verdicts on keys that this node changes or ends, for requests and open streams."""

from collections.abc import Callable
from typing import Final

import msgspec

from app.identity.keys import Keyring
from topics.ports.directory import AudioLink, Principal


class Change(msgspec.Struct, frozen=True, array_like=True):
    """A change of the keys of a project or an organization, as lanes tell each other."""

    project: str = ""
    organization: str = ""
    #: The project's keys have ended, or the organization was deleted.
    ended: bool = False


_change: Final = msgspec.msgpack.Decoder(Change)


class ChangedKeys(msgspec.Struct, frozen=True):
    """The keyrings of this node."""

    projects: Keyring[Principal]
    organizations: Keyring[str]
    audio: Keyring[AudioLink]
    #: Tells the other lanes of this machine.
    tell: Callable[[bytes], None] = lambda message: None
    #: Called when another process has changed keys.
    heard: Callable[[], None] = lambda: None

    def project(self, project: str, ended: bool = False) -> None:
        """Invalidate the verdicts on the keys, passes and links of a project; they may have `ended`."""
        self._all_apply(Change(project, "", ended))

    def organization(self, organization: str, deleted: bool = False) -> None:
        """End an organization's keys; with `deleted` also its projects' keys."""
        self._all_apply(Change("", organization, deleted))

    def doubt(self) -> None:
        """Some keys have ended, and nobody has told which."""
        for keyring in (self.projects, self.organizations, self.audio):
            keyring.doubt()
        self.heard()

    def hear(self, message: bytes) -> None:
        """Apply what another lane tells."""
        self._apply(_change.decode(message))
        self.heard()

    def _all_apply(self, change: Change) -> None:
        self._apply(change)
        self.tell(msgspec.msgpack.encode(change))

    def _apply(self, change: Change) -> None:
        project, organization, ended = change.project, change.organization, change.ended
        if project:
            self.projects.forget(lambda holder: holder.project == project, ended)
            self.audio.forget(lambda link: link.project == project, ended)
        if organization:
            self.organizations.forget(lambda holder: holder == organization, ended=True)
        if organization and ended:
            self.projects.forget(lambda holder: holder.organization == organization, ended=True)
            self.audio.forget(lambda link: link.organization == organization, ended=True)
