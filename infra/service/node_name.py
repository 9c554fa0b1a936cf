"""The name of the node that owns a directory, and whether the directory is a copy of that node's."""

import socket
from pathlib import Path

from infra.disk import replace_file
from topics import keys


class DirectoryName:
    """Implements `streams.membership.membership.NodeName`, with a file: the name, and the place where it is used.

    The first start, or one that finds the file damaged, chooses a name. A copied directory has another inode, or is on
    another host.
    """

    def __init__(self, directory: Path) -> None:
        self.file = directory / "node-id"
        self._place = f"{socket.gethostname()} {directory.stat().st_ino}"
        name, _, place = (self.file.read_text(errors="replace") if self.file.exists() else "").partition("\n")
        self.name = name.strip()
        self.is_copy = place.strip() != self._place
        if not keys.is_id(self.name):
            self.name, self.is_copy = keys.new_id(), False
            self._write(self._place)

    def keep(self) -> None:
        if self.is_copy:
            self.is_copy = False
            self._write(self._place)

    def give_up(self) -> None:
        self.is_copy = True
        self._write("")

    def _write(self, place: str) -> None:
        replace_file(self.file, f"{self.name}\n{place}\n".encode())
