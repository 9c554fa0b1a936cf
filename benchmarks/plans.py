"""What the load process is told to do, as JSON on its standard input; it answers with a `Sample`."""

from __future__ import annotations

import msgspec


class Target(msgspec.Struct, frozen=True):
    """Who is loaded: a port on this machine, and the processes whose CPU counts."""

    port: int
    pids: tuple[int, ...]
    brokers: tuple[int, ...] = ()
    key: str = ""


class Plan(msgspec.Struct, frozen=True, tag=True):
    """Base of all plans."""

    target: Target


class Live(Plan, frozen=True):
    """Live streams at full speed, windows read as they come; done = windows.

    A client sends `burst` chunks of 0.5 s, then waits until all but the newest `burst` windows can be read.
    """

    streams: int
    chunks: int
    burst: int = 8


class Uploads(Plan, frozen=True):
    """File sessions, one a connection, that take chunks as fast as they are acknowledged; done = chunks."""

    connections: int
    chunks: int


class Reads(Plan, frozen=True):
    """GET requests, each connection through all paths in its own order; done = reads."""

    connections: int
    paths: tuple[str, ...]
    rounds: int = 1


class Paced(Plan, frozen=True):
    """Live streams at the pace of real time, each with a reader that waits for every window; done = windows.

    `latencies` are milliseconds from the acknowledgement of the chunk that completes a window until the window is read.
    """

    streams: int
    seconds: float


class Idle(Plan, frozen=True):
    """Stream sessions that get one short chunk and nothing more; done = sessions."""

    sessions: int
    connections: int = 16


AnyPlan = Live | Uploads | Reads | Paced | Idle
