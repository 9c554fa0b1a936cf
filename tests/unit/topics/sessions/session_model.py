"""A second implementation of the specification's session table: plain fields and conditions, independent of the law."""

from dataclasses import dataclass, field


@dataclass
class Model:
    """One session as a client would describe it; each method returns the expected HTTP status."""

    state: str = "none"
    kind: str = "stream"
    total: int | None = None
    next: int = 0
    received: int = 0
    last: int = 0
    uses: str | None = None
    #: Whether its id stays taken for an hour after the deletion.
    derived: bool = False
    #: Sequence -> (idempotency key, bytes) of accepted uploads that had a key and named their number.
    keyed: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)

    @property
    def exists(self) -> bool:
        return self.state in ("writable", "readonly")

    def open(self, kind: str, total: int | None, now: int) -> int:
        if self.exists or self.state == "deleted":
            return 409
        self.state, self.kind, self.total, self.last = "writable", kind, total, now
        return 200

    def chunk(self, sequence: int | None, data: bytes, key: bytes, predict: bool, now: int) -> int:
        if not self.exists:
            return 404
        if sequence is not None and key and self.keyed.get(sequence, (b"", b""))[0] == key:
            return 200 if self.keyed[sequence][1] == data else 409
        if self.state == "readonly":
            return 403
        if refusal := self._misuse(sequence, predict):
            return refusal
        if key and sequence is not None:
            self.keyed[self.next] = key, data
        self.next += 1
        self.received += len(data)
        self.last = now
        self.uses = "predict" if predict else "chunks"
        if self.total is not None and self.received >= self.total:
            self.state = "readonly"
        return 200

    def _misuse(self, sequence: int | None, predict: bool) -> int | None:
        if predict and self.kind == "file":
            return 400
        if self.uses not in (None, "predict" if predict else "chunks"):
            return 400
        if sequence not in (None, self.next):
            return 409
        return None

    def seal(self) -> int:
        if not self.exists:
            return 404
        self.state = "readonly"
        return 204

    def delete(self, now: int) -> int:
        if not self.exists:
            return 404
        self._end(now)
        return 204

    def _end(self, now: int) -> None:
        self.state, self.last = "deleted" if self.derived else "forgotten", now

    def expire(self, now: int, came_since: bool) -> int:
        """End it, or forget that its id was taken, unless a command came since."""
        if self.state == "deleted" and not came_since:
            self.state = "forgotten"
        if not self.exists:
            return 404
        if came_since:
            return 409
        self._end(now)
        return 204
