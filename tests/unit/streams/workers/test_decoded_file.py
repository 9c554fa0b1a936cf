"""Files are decoded in other processes: same samples and errors, and no remains of failures."""

import asyncio
import errno
import gc
import io
import os
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from operator import add
from pathlib import Path
from signal import Signals
from tempfile import TemporaryFile
from typing import BinaryIO
from unittest import mock

import numpy as np
import psutil
import pytest

from streams.audio import decode
from streams.audio.decode import BROKEN_LIMIT, AudioFile, OpenFile
from streams.processes import confinement
from streams.processes.child import IDLE, TOO_LONG, Child, Deadlines, Stopwatch
from streams.processes.deaths import KILLED
from streams.processes.zygote_process import ZygoteProcess
from streams.workers import messages
from streams.workers.decoded_file import INVALID, MOST_SAMPLES
from streams.workers.process import StateLost, WorkerProcess
from streams.workers.workers import MOST_FILES
from tests.attacks.faulty_decoders import COMMAND, DEADLINES
from tests.audio import encoded, noise
from tests.file_pool import FilePool
from tests.garbage import uncollected
from tests.process import living
from tests.unit.streams.audio.test_decode import ANY, samples
from tests.unit.streams.workers.test_workers import Liar, answered
from tests.waiting import wait_for
from topics.errors import AudioError, AudioTooLong, Unavailable

pytestmark = pytest.mark.slow

RATE = 16_000


@pytest.fixture(scope="module")
def pool() -> Iterator[FilePool]:
    pool = FilePool(COMMAND, DEADLINES)
    yield pool
    pool.stop()
    assert not decoders()


def decoders() -> list[psutil.Process]:
    return [decoder for zygote in psutil.Process().children() for decoder in living(zygote)]


def worker(audio: AudioFile) -> WorkerProcess:
    process = audio._slot.process  # type: ignore[attr-defined]
    assert isinstance(process, WorkerProcess)
    return process


def kill(audio: AudioFile, signal: int = Signals.SIGKILL) -> None:
    """Send a signal to a file's worker; a block that was ready before the last kill may come without a new one."""
    if audio._slot.process is not None:  # type: ignore[attr-defined]
        with suppress(psutil.NoSuchProcess):
            psutil.Process(worker(audio).child.number).send_signal(signal)


def released(pool: FilePool) -> bool:
    """Return whether all workers end."""
    wait_for(lambda: not pool.held())
    return True


@pytest.mark.parametrize("seconds", [0.5, 20, 60])
@pytest.mark.parametrize("kind", ["WAV", "FLAC", "OGG", "MP3", "AIFF", "2 FLAC", "2 OGG", "half FLAC", "half CAF"])
def test_pool_returns_same_samples_as_decoder(pool: FilePool, kind: str, seconds: float) -> None:
    """In one message, in blocks that fill the memory several times, and from a file larger than the memory."""
    seconds = max(seconds, 2 * kind.startswith("half "))
    data = encoded(noise(2 * int(seconds * 8000)).reshape(-1, 2), 8000, kind.removeprefix("2 ").removeprefix("half "))
    if kind.startswith("half "):
        data = data[: len(data) // 2]
    data *= 1 + kind.startswith("2 ")
    want = decode.open_file(io.BytesIO(data), ANY)
    with TemporaryFile() as file:
        file.write(data)
        for source in (io.BytesIO(data), file):
            got = pool.open_file(source, ANY)
            assert (got.rate, got.channels, got.frames) == (want.rate, want.channels, want.frames)
            blocks = samples(got)
            assert got.tell() > 0.9 * len(data)
            assert np.array_equal(blocks, samples(decode.open_file(io.BytesIO(data), ANY)))
            assert (got.warning is not None) is kind.startswith("half ")


def fault_of(open_file: OpenFile, data: bytes, longest_s: int) -> tuple[int, float | None, type, str | None, object]:
    try:
        audio = open_file(io.BytesIO(data), ANY, longest_s)
        count = len(samples(audio))
    except AudioError as error:
        return 0, None, AudioTooLong if isinstance(error, AudioTooLong) else AudioError, str(error), None
    return count, audio.broken_at, object, audio.warning, audio.silence_ms


def flipped(data: bytes) -> bytes:
    """Return the data with another byte in its middle."""
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 0xFF]) + data[middle + 1 :]


@cache
def ogg(coder: str) -> bytes:
    return encoded(noise(30 * RATE), RATE, "OGG", coder)


def flipped_ogg(coder: str) -> bytes:
    return flipped(ogg(coder))


OGG = ("VORBIS", "OPUS")
FLAC = encoded(noise(30 * RATE), RATE, "FLAC")
NAN = np.where(np.arange(20 * RATE) == 123_456, np.nan, noise(20 * RATE)).astype(np.float32)
#: Each file, and the longest recording that is accepted. They are made for their test: not in each process of a run.
FAULTS: dict[str, tuple[Callable[[], bytes], int]] = {
    "nothing": (lambda: b"", 60),
    "text": (lambda: b"hello, is this audio?", 60),
    "a header alone": (lambda: encoded(np.empty((0, 1), np.float32), RATE), 60),
    "a torn header": (lambda: FLAC[:30], 60),
    **{f"{it!r} and noise": (partial(add, it, bytes(range(256)) * 8), 60) for it in (b"OggS", b"fLaC", b"\xff\xfb")},
    "FLAC with a flipped byte": (lambda: flipped(FLAC), 60),
    "a CAF chunk of impossible length": (lambda: b"caff\0\1\0\0name\x7f" + b"\xff" * 7 + bytes(100), 60),
    "a CAF chunk of negative length": (lambda: b"caff\0\1\0\0name\x80" + bytes(107), 60),
    **{f"{coder} with a flipped byte": (partial(flipped_ogg, coder), 60) for coder in OGG},
    "a file behind another that is no audio": (lambda: FLAC + FLAC[:8] + bytes(99), 60),
    "a sample that is no number": (lambda: encoded(NAN, RATE, "WAV", "FLOAT"), 60),
    "too long by its header": (lambda: FLAC, 20),
    "too long by its samples": (lambda: encoded(noise(30 * RATE), RATE, "MP3"), 20),
    "a rate beyond the limits": (lambda: encoded(noise(900), 500, "WAV", "FLOAT"), 60),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_pool_finds_the_same_faults_as_decoder(pool: FilePool, fault: str) -> None:
    make, longest_s = FAULTS[fault]
    data = make()
    got, want = (fault_of(open_file, data, longest_s) for open_file in (pool.open_file, decode.open_file))
    assert got == want
    assert want[3]


def test_each_file_has_a_worker_of_its_own(pool: FilePool) -> None:
    """A file that takes over its decoder could change, or leak, other owners' audio."""
    seen = set()
    for _ in range(3):
        with pool.open_file(io.BytesIO(FLAC), ANY) as audio:
            seen.add(worker(audio).child.number)
            list(audio.blocks())
    assert len(seen) == 3


def test_open_files_are_limited(pool: FilePool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_FILES > 64
    monkeypatch.setattr("streams.workers.workers.MOST_FILES", 2)
    refused = pytest.raises(Unavailable, match="too many recordings are being decoded")
    with pool.open_file(io.BytesIO(FLAC), ANY), pool.open_file(io.BytesIO(FLAC), ANY), refused:
        pool.open_file(io.BytesIO(FLAC), ANY)
    assert released(pool)


def test_closing_file_early_ends_its_decoder(pool: FilePool) -> None:
    audio = pool.open_file(io.BytesIO(FLAC), ANY)
    with audio:
        next(audio.blocks())
    assert released(pool)
    assert list(audio.unlimited) == []


@pytest.mark.parametrize("whole", [False, True])
def test_file_is_freed_with_its_last_reference(pool: FilePool, whole: bool) -> None:
    gc.collect()
    with uncollected():
        audio = pool.open_file(io.BytesIO(FLAC), ANY)
        blocks = audio.blocks()
        assert len(list(blocks) if whole else next(blocks))
        file = weakref.ref(audio)
        del audio, blocks
        assert file() is None
    assert released(pool)


def wav(rate: int) -> BinaryIO:
    return io.BytesIO(encoded(noise(rate), rate, "FLAC"))


@pytest.mark.parametrize(
    ("signal", "times", "between"),
    [(Signals.SIGKILL, 4, False), (Signals.SIGSTOP, 1, False), (Signals.SIGKILL, 1, True)],
)
def test_killed_or_stopped_decoder_is_replaced(pool: FilePool, signal: Signals, times: int, between: bool) -> None:
    """In the middle of its file, or between two blocks, without repeating samples: that is not the audio's fault."""
    long = encoded(noise(120 * RATE), RATE, "FLAC")
    with pool.open_file(io.BytesIO(long), ANY) as audio:
        blocks = audio.blocks()
        got = []
        for _ in range(times):
            got.append(next(blocks))
            if between:
                audio._next.result()  # type: ignore[attr-defined]
            deaths = pool.workers.deaths
            kill(audio, signal)
            wait_for(lambda: not between or pool.workers.deaths > deaths)  # noqa: B023
        got += list(blocks)
    assert np.array_equal(np.concatenate(got), samples(decode.open_file(io.BytesIO(long), ANY)))


@pytest.mark.parametrize("coder", OGG)
def test_replaced_decoder_finds_the_same_damage(pool: FilePool, coder: str) -> None:
    damaged = ogg(coder) + flipped_ogg(coder)
    want = decode.open_file(io.BytesIO(damaged), ANY)
    wanted = samples(want)
    got = []
    with pool.open_file(io.BytesIO(damaged), ANY) as audio:
        blocks = audio.blocks()
        for _ in range(3):
            got.append(next(blocks))
            kill(audio)
        got.extend(blocks)
    assert np.array_equal(np.concatenate(got), wanted)
    assert (audio.gaps, audio.silence_ms, audio.warning) == (want.gaps, want.silence_ms, want.warning)
    assert audio.silence_ms


def killing(audio: AudioFile) -> None:
    """Read a file, and kill its decoder after each block."""
    for _ in audio.blocks():
        kill(audio)


def test_repeatedly_killed_decoder_fails_file(pool: FilePool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.processes.deaths.KILLS", 3)
    with pool.open_file(io.BytesIO(encoded(noise(120 * RATE), RATE, "FLAC")), ANY) as audio:
        with pytest.raises(AudioError, match=KILLED):
            killing(audio)
        assert audio._deaths.kills == 3  # type: ignore[attr-defined]


@pytest.mark.parametrize("stuck", [True, False])
def test_pause_of_whole_service_does_not_count(monkeypatch: pytest.MonkeyPatch, stuck: bool) -> None:
    """A paused container stops both; the decoder has done nothing wrong."""
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    child = mock.Mock(spec=Child, processor_seconds=lambda: 0.1, is_stuck=lambda: stuck)
    stopwatch = Stopwatch(child, Deadlines(processor=1, idle=2, wall=3))
    faults = []
    for seconds in (0.5, 600, 0.5, 0.5, 0.5, 0.5):
        now += seconds
        faults.append(stopwatch.fault())
    assert faults == [None, None, None, *([IDLE, IDLE] if stuck else [None, None]), TOO_LONG]


def test_decoder_killed_at_startup_is_replaced(pool: FilePool) -> None:
    fork, dead = ZygoteProcess.fork, iter([True])

    def fork_later(process: ZygoteProcess, size: int, file: int | None) -> tuple[socket.socket, int]:
        if next(dead, False):
            raise ConnectionResetError
        return fork(process, size, file)

    with mock.patch.object(ZygoteProcess, "fork", fork_later):
        assert len(samples(pool.open_file(io.BytesIO(FLAC), ANY))) == 30 * RATE


def test_killed_zygote_is_replaced(pool: FilePool) -> None:
    pool.zygote.start()
    psutil.Process(pool.zygote.process).kill()
    for _ in range(3):
        assert len(samples(pool.open_file(wav(RATE), ANY))) == RATE


def test_decoders_run_outside_process_group_of_service(pool: FilePool) -> None:
    with pool.open_file(io.BytesIO(FLAC), ANY) as audio:
        assert os.getpgid(worker(audio).child.number) != os.getpgrp()
    assert os.getpgid(pool.zygote.process) != os.getpgrp()


def test_failed_zygote_start_raises_unavailable() -> None:
    pool = FilePool((sys.executable, "-c", "pass"))
    with pytest.raises(Unavailable, match="does not start"):
        pool.open_file(wav(RATE), ANY)
    assert released(pool)
    pool.stop()


@pytest.mark.parametrize("place", ["socket.socketpair", "subprocess.Popen"])
def test_zygote_that_cannot_be_forked_raises_unavailable(place: str) -> None:
    pool, refused = FilePool(), OSError(errno.EMFILE, "Too many open files")
    with mock.patch(f"streams.processes.zygote_process.{place}", side_effect=refused):
        for start in (pool.zygote.start, lambda: pool.open_file(wav(RATE), ANY)):
            with pytest.raises(Unavailable, match="no process for audio can be started: Too many open files"):
                start()
    assert released(pool)
    pool.stop()


def test_failed_fork_raises_unavailable(pool: FilePool) -> None:
    """And no other file loses its worker."""
    with pool.open_file(io.BytesIO(FLAC * 4), ANY) as audio:
        refused = mock.patch.object(ZygoteProcess, "fork", side_effect=ConnectionResetError)
        with refused, pytest.raises(Unavailable, match="no process for audio can be started"):
            pool.open_file(io.BytesIO(FLAC), ANY)
        assert len(list(audio.blocks()))


def test_stopped_service_ends_open_files() -> None:
    pool = FilePool()
    audio = pool.open_file(io.BytesIO(encoded(noise(120 * RATE), RATE, "FLAC")), ANY)
    blocks = audio.blocks()
    next(blocks)
    asyncio.run_coroutine_threadsafe(pool.workers.stop(), pool.workers.home).result()
    with pytest.raises((StateLost, Unavailable)):
        list(blocks)
    with pytest.raises(Unavailable):
        pool.open_file(io.BytesIO(FLAC), ANY)
    pool.stop()


HEADER = messages.Header(RATE, 1, None, "flac")


def lying(*answers: messages.Answer) -> FilePool:
    """Return a pool with compromised workers, which give these answers."""
    return FilePool(fork=Liar(*((b"", answered(messages.encode(answer))) for answer in answers)).fork)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(messages.Block(HEADER), id="nothing"),
        pytest.param(messages.Block(HEADER, length=4 * MOST_SAMPLES + 4), id="too much"),
        pytest.param(messages.Block(HEADER, length=3), id="a part of a sample"),
        pytest.param(messages.Block(HEADER, silence=-1), id="less than nothing"),
        pytest.param(messages.Block(HEADER, length=-4), id="fewer than none"),
        pytest.param(messages.Block(HEADER, length=1 << 40), id="more than there is"),
        pytest.param(messages.Block(length=4), id="no header"),
        pytest.param(messages.Block(messages.Header(1, 1, None, "flac"), length=4), id="a rate that is none"),
    ],
)
def test_invalid_answer_raises_audio_error(answer: messages.Block) -> None:
    pool = lying(answer)
    with pytest.raises(AudioError, match=f"{INVALID}|allowed are"):
        pool.open_file(wav(RATE), ANY)
    assert released(pool)
    pool.stop()


def test_nan_samples_from_worker_are_rejected() -> None:
    said = messages.encode(messages.Block(HEADER, length=8, notes=()))
    pool = FilePool(fork=Liar((b"", answered(said) + np.array([0, np.nan], np.float32).tobytes())).fork)
    with pytest.raises(AudioError, match="not all finite"):
        samples(pool.open_file(wav(RATE), ANY))
    pool.stop()


ORPHANS = """
import io, os, sys
from tests.audio import encoded, noise
from tests.file_pool import FilePool
from topics.media import parse

pool = FilePool()
audio = pool.open_file(io.BytesIO(encoded(noise(480000), kind="FLAC")), parse("application/octet-stream"))
print(pool.zygote.process, audio._slot.process.child.number, flush=True)
sys.stdin.read()
"""


def test_decoders_end_when_service_is_killed() -> None:
    child = subprocess.Popen([sys.executable, "-c", ORPHANS], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with child:
        assert child.stdout is not None
        processes = [psutil.Process(int(number)) for number in child.stdout.readline().split()]
        child.kill()
        assert len(processes) == 2
        psutil.wait_procs(processes, timeout=60)
        assert not [process for process in processes if process.is_running()]


class Descriptor:
    """A file that Python would not open: a directory."""

    def __init__(self, number: int) -> None:
        self._number = number

    def fileno(self) -> int:
        return self._number

    def close(self) -> None:
        os.close(self._number)


def test_source_read_error_is_not_an_audio_error(pool: FilePool, tmp_path: Path) -> None:
    with TemporaryFile() as file:
        file.write(FLAC * 4)
        audio = pool.open_file(file, ANY)
    with audio:
        # The worker has the file open; its owner may close it.
        assert len(next(audio.blocks()))
    directory = os.open(tmp_path, os.O_RDONLY)
    unreadable = mock.Mock(spec=io.BufferedReader, **{"fileno.return_value": directory})
    with mock.patch("os.fdopen", lambda file, mode: Descriptor(file)), pytest.raises(IsADirectoryError):
        pool.open_file(unreadable, ANY)
    os.close(directory)
    assert released(pool)


def test_background_decoders_run_at_lower_priority(pool: FilePool) -> None:
    background = FilePool(nice=7)
    with background.open_file(io.BytesIO(FLAC), ANY) as audio:
        next(audio.blocks())
        decoder = worker(audio).child.number
        # 19 is the lowest priority, and the tests themselves may run at a low one.
        assert os.getpriority(os.PRIO_PROCESS, decoder) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + 7)
    background.stop()


def test_decoder_cpu_time_is_limited(pool: FilePool) -> None:
    # Its decoder takes 9 ms on an EPYC, and this thread half a millisecond.
    long = encoded(noise(60 * RATE), RATE, "MP3")
    with pool.open_file(io.BytesIO(long), ANY) as audio, pytest.raises(AudioError, match=BROKEN_LIMIT):
        list(audio.blocks(0.002))


CONFINED = """
import ctypes, mmap, os, socket, tempfile
from streams.processes import confinement

def refused(deed):
    try:
        deed()
    except (OSError, MemoryError):
        return True

file = tempfile.TemporaryFile(buffering=0)
filtered = confinement.confine(256 << 20)
assert refused(lambda: os.open(os.devnull, os.O_RDONLY)), "a file was opened"
assert refused(lambda: file.write(b"x")), "a byte was written"
assert refused(lambda: bytearray((256 + 16) << 20)), "memory was had"
assert refused(socket.socket), "a socket was opened"
if filtered:
    assert refused(lambda: os.kill(os.getppid(), 0)), "a signal was sent"
    assert refused(os.fork), "a process was started"
    assert refused(lambda: os.stat("/")), "the name of a file was looked up"
    assert refused(os.getcwd), "the working directory was told"
os._exit(7 if filtered else 8)
"""


def test_confined_decoder_cannot_use_system_resources() -> None:
    child = subprocess.run([sys.executable, "-c", CONFINED], stderr=subprocess.PIPE, timeout=60)
    assert child.returncode in (7, 8), child.stderr
    if child.returncode == 8:
        pytest.skip("this kernel filters no system calls")


def test_decoder_environment_has_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EARSHOT_ADMIN_KEY", "a secret")
    pool = FilePool()
    with pool.open_file(io.BytesIO(FLAC), ANY):
        found = [Path(f"/proc/{decoder.pid}/environ").read_bytes() for decoder in decoders()]
    pool.stop()
    assert found
    assert b"a secret" not in b"".join(found)


def test_filter_is_short_enough() -> None:
    assert len(confinement.SYSTEM_CALLS) < 250, "a filter jumps over at most 255 instructions"
