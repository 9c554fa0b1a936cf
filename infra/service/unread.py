"""Tells whether a client reads what it is sent."""


class Unread:
    """Watches the output of one connection, from check to check. Loop only."""

    __slots__ = ("left", "written")

    def __init__(self) -> None:
        #: Unread bytes at the last check, and bytes written since then.
        self.left = self.written = 0

    def is_read(self, left: int) -> bool:
        """Return whether the client has read anything since the last check, or all; `left` bytes are unread now.

        A slow reader reads, even while more is written than it takes.
        """
        before, self.left, self.written = self.left + self.written, left, 0
        return not left or left < before
