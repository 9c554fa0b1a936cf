"""The process that probes are forked from: the decoder is loaded once, and each recording gets a process of its own.

Protocol: standard input is a socket to the parent. The parent sends one byte and two descriptors: the recording, and a
socket for this probe alone, into which it has written the encoded declaration. The probe writes a `ProbeAnswer` there
and ends; an end without an answer means that it broke a limit. READY is sent once, when requests can be made.
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

from streams.probe.first_second import probe_recording
from topics.errors import AudioError, AudioTooLong
from topics.media import Media
from topics.ports.prober import ProbeResult

READY: Final = b"r"
ASK: Final = b"a"
#: A declaration fits in one read, and so does an answer.
MESSAGE_BYTES: Final = 4096

CPU_SECONDS: Final = 2
WALL_SECONDS: Final = 3.0
MEMORY_BYTES: Final = 1 << 30
BROKEN_LIMIT: Final = "the audio could not be read within its limits"

#: No file or socket can be opened, no byte written to a file, no process started.
LIMITS: Final = {
    resource.RLIMIT_CORE: 0,
    resource.RLIMIT_FSIZE: 0,
    resource.RLIMIT_NOFILE: 0,
    resource.RLIMIT_NPROC: 0,
    resource.RLIMIT_AS: MEMORY_BYTES,
}


class ProbeAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The answer of a probe: its result, or the fault of the audio; neither where it could not decode."""

    result: ProbeResult | None = None
    fault: str | None = None
    #: The fault is that the audio is longer than is allowed.
    too_long: bool = False


ANSWER: Final = msgspec.msgpack.Decoder(ProbeAnswer)
_DECLARED: Final = msgspec.msgpack.Decoder(Media | None)


def serve(control: socket.socket) -> None:
    """Fork a probe for each request until the parent closes its end."""
    silence = os.open(os.devnull, os.O_RDWR)
    control.sendall(READY)
    while True:
        request, descriptors, _, _ = socket.recv_fds(control, 1, 2)
        if not request:
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
            os.write(line, msgspec.msgpack.encode(ProbeAnswer()))
        return
    if child == 0:
        try:
            # Decoders print messages about damaged files; and standard input is the parent's socket, not the child's.
            for standard in (0, 1, 2):
                os.dup2(silence, standard)
            _probe(recording, line)
        finally:
            os._exit(0)


def confine(cpu_seconds: int = CPU_SECONDS) -> None:
    """Limit this process for good; the kernel kills it when it takes too much time."""
    signal.setitimer(signal.ITIMER_REAL, WALL_SECONDS)
    for limit, most in {resource.RLIMIT_CPU: cpu_seconds, **LIMITS}.items():
        with suppress(ValueError, OSError):  # not every system has every limit, and one may be lower already
            resource.setrlimit(limit, (most, most))


def _probe(recording: int, line: int) -> None:
    confine()
    declared = _DECLARED.decode(os.read(line, MESSAGE_BYTES))
    os.write(line, msgspec.msgpack.encode(_answer(recording, declared)))


def _answer(recording: int, declared: Media | None) -> ProbeAnswer:
    try:
        with os.fdopen(recording, "rb", closefd=False) as source:
            return ProbeAnswer(result=probe_recording(source, declared))
    except AudioError as error:
        return ProbeAnswer(fault=str(error)[:512], too_long=isinstance(error, AudioTooLong))
    except MemoryError:
        return ProbeAnswer(fault=BROKEN_LIMIT)
    except OSError:
        return ProbeAnswer()


def main() -> None:
    """Run as the child of `streams.probe.prober.ForkingProber`."""
    # Ctrl-C in a terminal reaches every process of the group; this one ends when its parent closes the socket.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the probes
    with socket.socket(fileno=sys.stdin.fileno()) as control, suppress(ConnectionError):
        serve(control)


if __name__ == "__main__":
    main()
