"""The process that probes are forked from: the decoder is loaded once, and each recording gets a process of its own.

Protocol: the parent sends one byte and two descriptors on standard input, a socket: the recording, and the socket of
this one probe, in which the encoded declaration lies. The probe writes an `Answer` there and ends; an end without an
answer means that it broke a limit. READY is sent once, when probes can be asked for.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys
from contextlib import suppress
from typing import Final

import msgspec

from streams.probe.look import look
from topics.errors import AudioError, AudioTooLong
from topics.media import Media
from topics.ports.prober import ProbeResult

READY: Final = b"r"
ASK: Final = b"a"
#: A declaration and an answer fit in one read.
MESSAGE_BYTES: Final = 4096

CPU_SECONDS: Final = 2
WALL_SECONDS: Final = 3.0
MEMORY_BYTES: Final = 1 << 30
BROKEN_LIMIT: Final = "the audio could not be read within its limits"

#: No file or socket can be opened, no byte written to a file, no process begun.
LIMITS: Final = {
    resource.RLIMIT_CORE: 0,
    resource.RLIMIT_FSIZE: 0,
    resource.RLIMIT_NOFILE: 0,
    resource.RLIMIT_NPROC: 0,
    resource.RLIMIT_AS: MEMORY_BYTES,
}


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """What a probe says: what it found, the fault of the audio, or (neither) that it could not look."""

    found: ProbeResult | None = None
    fault: str | None = None
    #: The fault is that there is more audio than is allowed.
    too_long: bool = False


ANSWER: Final = msgspec.msgpack.Decoder(Answer)
_DECLARED: Final = msgspec.msgpack.Decoder(Media | None)


def serve(control: socket.socket) -> None:
    """Fork a probe for each request until the parent closes its end."""
    silence = os.open(os.devnull, os.O_RDWR)
    control.sendall(READY)
    while True:
        asked, descriptors, _, _ = socket.recv_fds(control, 1, 2)
        if not asked:
            return
        try:
            if len(descriptors) == 2:
                _fork(descriptors[0], descriptors[1], silence)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)


def _fork(recording: int, line: int, silence: int) -> None:
    try:
        child = os.fork()
    except OSError:
        with suppress(OSError):
            os.write(line, msgspec.msgpack.encode(Answer()))
        return
    if child == 0:
        try:
            # Decoders print what they think of damaged files; and the control socket is not for the child.
            for standard in (0, 1, 2):
                os.dup2(silence, standard)
            _probe(recording, line)
        finally:
            os._exit(0)


def confine(cpu_seconds: int = CPU_SECONDS) -> None:
    """Put the limits on this process, for good; the kernel kills it when one of time is broken."""
    signal.setitimer(signal.ITIMER_REAL, WALL_SECONDS)
    for limit, most in {resource.RLIMIT_CPU: cpu_seconds, **LIMITS}.items():
        with suppress(ValueError, OSError):  # not every system knows every limit, and one may be lower already
            resource.setrlimit(limit, (most, most))


def _probe(recording: int, line: int) -> None:
    confine()
    declared = _DECLARED.decode(os.read(line, MESSAGE_BYTES))
    os.write(line, msgspec.msgpack.encode(_answer(recording, declared)))


def _answer(recording: int, declared: Media | None) -> Answer:
    try:
        with os.fdopen(recording, "rb", closefd=False) as source:
            return Answer(found=look(source, declared))
    except AudioError as error:
        return Answer(fault=str(error)[:512], too_long=isinstance(error, AudioTooLong))
    except MemoryError:
        return Answer(fault=BROKEN_LIMIT)
    except OSError:
        return Answer()


def main() -> None:
    """Run as the child of `streams.probe.prober.Prober`."""
    # Ctrl-C in a terminal reaches every process of the group; this one ends when its parent closes the socket.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the probes
    with socket.socket(fileno=sys.stdin.fileno()) as control, suppress(ConnectionError):
        serve(control)


if __name__ == "__main__":
    main()
