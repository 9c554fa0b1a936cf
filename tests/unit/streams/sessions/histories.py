"""Random histories of commands of a few sessions in one partition."""

from hypothesis import strategies as st

from streams.log import StoredRecord
from tests.unit.streams.sessions.rows import delivered
from tests.unit.streams.sessions.world import BAD, IDLE_MS
from topics.sessions.records import Chunk, Deleted, Expired, Opened, Sealed, SessionCommand, SessionKind

SESSIONS = ["A" * 24, "A" * 23 + "B"]
PAYLOADS = [b"a", b"bb", b"ccc", b"dddd"]
#: Log time between two commands.
PAUSES = [0, 0, 0, 0, 0, 1, 1000, IDLE_MS // 2, IDLE_MS, IDLE_MS + 1]


def opening(kind: SessionKind, total: int | None, derived: bool = False) -> Opened:
    return Opened("c", kind, "audio/wav", "p", 1000, 500, total, derived=derived)


@st.composite
def histories(draw: st.DrawFn, *, damaged: bool = False) -> list[StoredRecord]:
    """Return the records of a command topic.

    A damaged one has chunks that do not decode, and no expiry: whether a chunk after the damage counts as activity
    depends on which of the two was folded first.
    """
    made: list[StoredRecord] = []
    at = 1_700_000_000_000
    modes: dict[str, str] = {}
    numbers: dict[str, int] = {}
    for _ in range(draw(st.integers(3, 16))):
        session = draw(st.sampled_from(SESSIONS))
        at += 0 if damaged else draw(st.sampled_from(PAUSES))
        if session not in modes:
            modes[session] = draw(st.sampled_from(["stream", "stream", "predict", "file"]))
            kind: SessionKind = "file" if modes[session] == "file" else "stream"
            command: SessionCommand = opening(kind, draw(st.sampled_from([None, None, 5])), draw(st.booleans()))
        else:
            command = draw(_commands(modes[session], numbers.get(session, 0), damaged))
        if isinstance(command, Chunk):
            numbers[session] = max(numbers.get(session, 0), 1 + (command.sequence or 0))
        made.append(delivered(len(made), session, command, at))
    return made


@st.composite
def _commands(draw: st.DrawFn, mode: str, following: int, damaged: bool) -> SessionCommand:
    what = draw(st.sampled_from(["chunk"] * 6 + ["again", "seal", "delete", "delete", "expire"]))
    if what == "seal":
        return Sealed("c")
    if what == "delete":
        return Deleted("c")
    if what == "expire" and not damaged:
        return Expired("sweep", draw(st.integers(-1, 9)), draw(st.integers(0, 3)))
    sequence = max(0, following - (what == "again"))
    data = draw(st.sampled_from([*PAYLOADS, BAD] if damaged else PAYLOADS))
    key = draw(st.sampled_from([b"", b"k1", b"k2"]))
    predict = mode == "predict"
    return Chunk("c", None if predict else sequence, data, key, predict)
