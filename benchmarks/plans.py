"""Plans for the load process, sent as JSON to its standard input; it answers with a `Sample`."""

import msgspec


class Target(msgspec.Struct, frozen=True):
    """The server under load: its port on this machine, and the processes whose CPU time counts."""

    port: int
    pids: tuple[int, ...]
    brokers: tuple[int, ...] = ()
    key: str = ""


class LoadPlan(msgspec.Struct, frozen=True, tag=True):
    """Base of all plans."""

    target: Target


class LivePlan(LoadPlan, frozen=True):
    """Live streams at full speed, windows read as they come; done = windows.

    A client sends `burst` chunks of 0.5 s, then waits until all but the newest `burst` windows can be read.
    """

    streams: int
    chunks: int
    burst: int = 8
    #: By live sockets, not by requests.
    sockets: bool = False


class UploadPlan(LoadPlan, frozen=True):
    """File sessions, one for each connection, with chunks as fast as they are acknowledged; done = chunks."""

    connections: int
    chunks: int


class ReadPlan(LoadPlan, frozen=True):
    """GET requests: each connection reads all paths, each from another one on; done = reads."""

    connections: int
    paths: tuple[str, ...]
    rounds: int = 1
    #: With the project key, which reads by an id do not need.
    keyed: bool = False


class PacedPlan(LoadPlan, frozen=True):
    """Live streams at the pace of real time, each with a reader that waits for every window; done = windows.

    `latencies` are milliseconds from the acknowledgement of the chunk that completes a window until the window is read,
    or with `from_sent` from the sending of that chunk.
    """

    streams: int
    seconds: float
    #: Raw audio as `benchmarks.audio` sends it, which each stream repeats; noise where there is none.
    recording: str = ""
    from_sent: bool = False
    #: Seconds at the beginning whose latencies do not count.
    warm: float = 0.0
    #: By live sockets, not by requests.
    sockets: bool = False


class IdlePlan(LoadPlan, frozen=True):
    """Stream sessions that get one short chunk and nothing more; done = sessions."""

    sessions: int
    connections: int = 16


AnyPlan = LivePlan | UploadPlan | ReadPlan | PacedPlan | IdlePlan
