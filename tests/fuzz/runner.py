"""Runs a target in a child process. An input that kills or hangs the child is a finding."""

import hashlib
import mmap
import multiprocessing
import os
import random
import resource
import struct
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

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
    with tempfile.TemporaryDirectory(prefix="earshot-fuzz-") as scratch:
        # Killed children clean nothing up.
        before, tempfile.tempdir = tempfile.tempdir, scratch
        try:
            return _fuzz(target, seconds, seed, most)
        finally:
            tempfile.tempdir = before


def _fuzz(target: FuzzTarget, seconds: float, seed: int, most: int) -> Outcome:
    findings: list[Finding] = []
    began, inputs, slowest = time.monotonic(), 0, 0.0
    while (left := seconds - (time.monotonic() - began)) > 0 and len(findings) < ENOUGH and inputs < most:
        shared = mmap.mmap(-1, _HEAD.size + MOST_BYTES)
        receiver, sender = multiprocessing.Pipe(duplex=False)
        child = multiprocessing.get_context("fork").Process(
            target=_work, args=(target, left, seed + inputs, most - inputs, shared, sender), daemon=True
        )
        child.start()
        sender.close()
        done, count, longest, fault = _watch(child, receiver, shared)
        inputs, slowest = inputs + count, max(slowest, longest)
        if fault is not None:
            findings.append(Finding(target.name, _last(shared), fault))
        if done:
            break
    return Outcome(target.name, inputs, time.monotonic() - began, slowest, tuple(findings))


def _watch(
    child: multiprocessing.process.BaseProcess, receiver: Connection, shared: mmap.mmap
) -> tuple[bool, int, float, str | None]:
    """Wait for a child; return (done, inputs, slowest input, fault)."""
    last, since = -1, time.monotonic()
    while not receiver.poll(0.2):
        count, _ = _HEAD.unpack_from(shared)
        if count != last:
            last, since = count, time.monotonic()
        elif time.monotonic() - since > HANGING_S and count:
            child.kill()
            child.join()
            return False, count, time.monotonic() - since, f"still at work after {HANGING_S:g} s"
    count, _ = _HEAD.unpack_from(shared)
    try:
        slowest, fault = receiver.recv()
    except EOFError:
        child.join()
        return False, count, 0.0, f"the process died: {child.exitcode}"
    child.join()
    return fault is None, count, slowest, fault


def _last(shared: mmap.mmap) -> bytes:
    _, size = _HEAD.unpack_from(shared)
    return bytes(shared[_HEAD.size : _HEAD.size + size])


def _work(target: FuzzTarget, seconds: float, seed: int, most: int, shared: mmap.mmap, sender: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    os.nice(5)
    # Libraries print messages about a file.
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    run, mutator = target.prepare(), Mutator(target.all_seeds(), random.Random(seed))
    seeds = iter(list(mutator.seeds))
    count, slowest, end = 0, 0.0, time.monotonic() + seconds
    while count < most:
        data = next(seeds, None)
        data = mutator.next() if data is None else data[:MOST_BYTES]
        count += 1
        # The count last: the fuzzer reads the input as soon as it changes.
        shared[_HEAD.size : _HEAD.size + len(data)] = data
        _HEAD.pack_into(shared, 0, count, len(data))
        began = time.process_time()
        try:
            run(data)
        except BaseException as error:
            sender.send((slowest, f"{type(error).__name__}: {error}"))
            os._exit(0)
        slowest = max(slowest, time.process_time() - began)
        if slowest > SLOWEST_S:
            sender.send((slowest, f"took {slowest:.1f} s"))
            os._exit(0)
        if time.monotonic() > end:
            break
    sender.send((slowest, None))
    os._exit(0)
