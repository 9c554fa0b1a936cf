"""Runs a target in a child process. An input that kills or hangs the child is a finding."""

import hashlib
import mmap
import multiprocessing
import os
import random
import resource
import signal
import struct
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final
from unittest import mock

import msgspec

from tests.fuzz.mutation import MOST_BYTES, Mutator
from tests.fuzz.targets import CORPUS, FuzzTarget

#: An input that takes more processor time is a finding, and so is one that takes longer by the clock, which runs on
#: while a busy machine lets other processes run.
SLOWEST_S: Final = 5.0
HANGING_S: Final = 60.0
#: Memory limit of a child; exceeding it is also a finding.
MEMORY: Final = 6 << 30
#: Findings of one run after which the target stops.
ENOUGH: Final = 5
_HEAD: Final = struct.Struct("<QI")


class Finding(msgspec.Struct, frozen=True):
    """An input that makes a target fail."""

    target: str
    data: bytes
    fault: str

    def keep(self) -> Path:
        """Write the input into the corpus; return its path."""
        path = CORPUS / self.target / hashlib.sha256(self.data).hexdigest()[:16]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.data)
        return path


class Outcome(msgspec.Struct, frozen=True):
    target: str
    inputs: int
    seconds: float
    slowest: float
    findings: tuple[Finding, ...]


def fuzz(target: FuzzTarget, seconds: float, seed: int, most: int = sys.maxsize) -> Outcome:
    """Run a target for some seconds, or for `most` inputs; a killed child is a finding, and a new one continues."""
    findings: list[Finding] = []
    began, inputs, slowest = time.monotonic(), 0, 0.0
    # Killed children clean nothing up.
    with (
        tempfile.TemporaryDirectory(prefix="earshot-fuzz-") as scratch,
        mock.patch.object(tempfile, "tempdir", scratch),
    ):
        while (left := seconds - (time.monotonic() - began)) > 0 and len(findings) < ENOUGH and inputs < most:
            shared = mmap.mmap(-1, _HEAD.size + MOST_BYTES)
            longest, fault = _outcome(target, left, seed + inputs, most - inputs, shared)
            count, size = _HEAD.unpack_from(shared)
            inputs, slowest = inputs + count, max(slowest, longest)
            if fault is None:
                break
            findings.append(Finding(target.name, shared[_HEAD.size : _HEAD.size + size], fault))
    return Outcome(target.name, inputs, time.monotonic() - began, slowest, tuple(findings))


def _outcome(target: FuzzTarget, seconds: float, seed: int, most: int, shared: mmap.mmap) -> tuple[float, str | None]:
    """Run a child to its end; return the seconds of its slowest input, and its fault."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(
        target=_work, args=(target, seconds, seed, most, shared, sender), daemon=True
    )
    child.start()
    sender.close()
    try:
        told: tuple[float, str | None] = receiver.recv()
        child.join()
    except EOFError:
        child.join()
        hung = child.exitcode == -signal.SIGALRM
        return 0.0, f"still at work after {HANGING_S:g} s" if hung else f"the process died: {child.exitcode}"
    return told


def _work(target: FuzzTarget, seconds: float, seed: int, most: int, shared: mmap.mmap, sender: Connection) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    os.nice(5)
    # Libraries print messages about a file.
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    run, mutator = target.prepare(), Mutator(target.all_seeds(), random.Random(seed))
    seeds = iter(mutator.seeds)
    count, slowest, end, fault = 0, 0.0, time.monotonic() + seconds, None
    while count < most and fault is None and time.monotonic() < end:
        data = next(seeds, None)
        data = mutator.next() if data is None else data[:MOST_BYTES]
        count += 1
        shared[_HEAD.size : _HEAD.size + len(data)] = data
        _HEAD.pack_into(shared, 0, count, len(data))
        signal.setitimer(signal.ITIMER_REAL, HANGING_S)
        began = time.process_time()
        try:
            run(data)
        except BaseException as error:
            fault = f"{type(error).__name__}: {error}"
        slowest = max(slowest, time.process_time() - began)
        if fault is None and slowest > SLOWEST_S:
            fault = f"took {slowest:.1f} s"
    sender.send((slowest, fault))
    os._exit(0)
