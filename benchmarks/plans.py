"""Plans for the load process, sent as JSON to its standard input; its output is a `Sample`."""

import msgspec


class Target(msgspec.Struct, frozen=True):
    """The server under load: its local port, and the processes whose CPU time counts."""

    port: int
    pids: tuple[int, ...]
    brokers: tuple[int, ...] = ()
    key: str = ""


class LoadPlan(msgspec.Struct, frozen=True, tag=True):
    target: Target


class LivePlan(LoadPlan, frozen=True):
    """Live streams at full speed, windows read as they come; done = windows.

    A client sends `burst` chunks of 0.5 s, then waits until all windows except the newest `burst` can be read.
    """

    streams: int
    chunks: int
    burst: int = 8
    #: Use live sockets instead of requests.
    sockets: bool = False
    #: Keys of the projects that the streams are spread over; that of the target if empty.
    keys: tuple[str, ...] = ()
    #: Of two lanes with a partition each: each socket is of a session of the lane that did not accept it.
    away: bool = False


class UploadPlan(LoadPlan, frozen=True):
    """File sessions, one per connection, with chunks sent as fast as they are acknowledged; done = chunks."""

    connections: int
    chunks: int
    #: Port of another node, to which the chunks go.
    via: int | None = None


class TurnsPlan(LoadPlan, frozen=True):
    """Connections that send a chunk to one file session and one to another in turn; done = chunks.

    There are two lanes with a partition each. The two sessions are of different lanes if `away`, else of one lane.
    """

    connections: int
    chunks: int
    away: bool


class ReadPlan(LoadPlan, frozen=True):
    """GET requests: each connection reads all paths, starting at a different one; done = reads."""

    connections: int
    paths: tuple[str, ...]
    rounds: int = 1
    #: Send the project key, which reads by id do not need.
    keyed: bool = False


class PacedPlan(LoadPlan, frozen=True):
    """Live streams in real time, each with a reader that waits for every window; done = windows.

    `latencies` are milliseconds from the acknowledgement of the chunk that completes a window until the window is read;
    `from_sent` counts from sending that chunk.
    """

    streams: int
    seconds: float
    #: Raw audio in the format of `benchmarks.audio`, which each stream repeats; noise if empty.
    recording: str = ""
    from_sent: bool = False
    #: Initial seconds whose latencies do not count.
    warm: float = 0.0
    #: Use live sockets instead of requests.
    sockets: bool = False
    #: As in `LivePlan`.
    keys: tuple[str, ...] = ()
    #: If given, all sessions are of this one of two partitions.
    partition: int | None = None


class IdlePlan(LoadPlan, frozen=True):
    """Stream sessions with a single short chunk each; done = sessions."""

    sessions: int
    connections: int = 16


AnyPlan = LivePlan | UploadPlan | TurnsPlan | ReadPlan | PacedPlan | IdlePlan
