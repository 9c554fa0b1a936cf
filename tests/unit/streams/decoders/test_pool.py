"""Files are decoded in other processes: same samples and errors, and no remains of failures."""

import errno
import gc
import io
import os
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
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
from streams.decoders import confinement, messages
from streams.decoders.child import IDLE, TOO_LONG, Child, Deadlines, Watch
from streams.decoders.decoder_process import DecoderDied, DecoderProcess
from streams.decoders.pool import MAX_IDLE, DecoderPool
from streams.decoders.processes import Zygote
from tests.attacks.decoders import DEADLINES, SENTENCES
from tests.attacks.faulty_decoders import COMMAND
from tests.audio import encoded, noise
from tests.garbage import uncollected
from tests.process import living
from tests.unit.streams.audio.test_decode import ANY, Broken, samples, until_it_breaks
from topics.errors import AudioError, AudioTooLong, Unavailable

pytestmark = pytest.mark.slow

RATE = 16_000


@pytest.fixture(scope="module")
def pool() -> Iterator[DecoderPool]:
    pool = DecoderPool(deadlines=DEADLINES, zygote=Zygote(COMMAND))
    yield pool
    pool.stop()
    assert not decoders()


def decoders() -> list[psutil.Process]:
    return [decoder for zygote in psutil.Process().children() for decoder in living(zygote)]


@pytest.mark.parametrize("seconds", [0.5, 20, 60])
@pytest.mark.parametrize("kind", ["WAV", "FLAC", "OGG", "MP3", "AIFF", "2 FLAC", "2 OGG", "half FLAC", "half CAF"])
def test_pool_returns_same_samples_as_decoder(pool: DecoderPool, kind: str, seconds: float) -> None:
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
            assert (got.shortfall is not None) is kind.startswith("half ")


def fault_of(open_file: OpenFile, data: bytes, longest_s: int) -> tuple[int, float | None, type, str]:
    try:
        audio = open_file(io.BytesIO(data), ANY, longest_s)
    except AudioError as error:
        return 0, None, type(error), str(error)
    found, damage = until_it_breaks(audio)
    return len(found), audio.broken_at, type(damage), audio.fault(damage)


def flipped(data: bytes) -> bytes:
    """Return the data with another byte in its middle."""
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 0xFF]) + data[middle + 1 :]


OGG = ("VORBIS", "OPUS")
FLAC = encoded(noise(30 * RATE), RATE, "FLAC")
NAN = np.where(np.arange(20 * RATE) == 123_456, np.nan, noise(20 * RATE)).astype(np.float32)
FAULTS = {
    "nothing": (b"", 60),
    "text": (b"hello, is this audio?", 60),
    "a header alone": (encoded(np.empty((0, 1), np.float32), RATE), 60),
    "a torn header": (FLAC[:30], 60),
    **{f"{magic!r} and noise": (magic + bytes(range(256)) * 8, 60) for magic in (b"OggS", b"fLaC", b"\xff\xfb")},
    "FLAC with a flipped byte": (flipped(FLAC), 60),
    "a CAF chunk of impossible length": (b"caff\0\1\0\0name\x7f" + b"\xff" * 7 + bytes(100), 60),
    "a CAF chunk of negative length": (b"caff\0\1\0\0name\x80" + bytes(107), 60),
    **{f"{coder} with a flipped byte": (flipped(encoded(noise(30 * RATE), RATE, "OGG", coder)), 60) for coder in OGG},
    "two rates in a row": (FLAC + encoded(noise(900), 8000, "FLAC"), 60),
    "a sample that is no number": (encoded(NAN, RATE, "WAV", "FLOAT"), 60),
    "too long by its header": (FLAC, 20),
    "too long by its samples": (encoded(noise(30 * RATE), RATE, "MP3"), 20),
    "a rate beyond the limits": (encoded(noise(900), 500, "WAV", "FLOAT"), 60),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_pool_raises_same_errors_as_decoder(pool: DecoderPool, fault: str) -> None:
    data, longest_s = FAULTS[fault]
    got, want = (fault_of(open_file, data, longest_s) for open_file in (pool.open_file, decode.open_file))
    # The number of samples before the error depends on the block size.
    assert got[1:] == want[1:]
    assert got[0] == want[0] or want[2] is AudioTooLong


def test_decoders_are_reused_up_to_request_limit(pool: DecoderPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.decoders.pool.MAX_REQUESTS", 3)
    pool.stop()
    data = encoded(noise(RATE), RATE, "FLAC")
    seen = set()
    for _ in range(9):
        samples(pool.open_file(io.BytesIO(data), ANY, owner="project"))
        seen |= {decoder.pid for decoder in decoders()}
    assert len(seen) == 3
    assert len(decoders()) <= MAX_IDLE


def test_decoder_serves_one_owner(pool: DecoderPool) -> None:
    """A file that takes over its decoder could change, or leak, other owners' audio."""
    pool.stop()
    seen: dict[str | None, list[int]] = {"one": [], "two": [], None: []}
    for owner in ("one", None, "two", "one", None, "two"):
        with pool.open_file(io.BytesIO(FLAC), ANY, owner=owner) as audio:
            process = audio._decoder.child.number  # type: ignore[attr-defined]
            list(audio.blocks())
        seen[owner].append(process)
    assert [len(set(seen[owner])) for owner in ("one", "two", None)] == [1, 1, 2]
    assert len({process for processes in seen.values() for process in processes}) == 4


def test_closing_file_early_ends_its_decoder(pool: DecoderPool) -> None:
    audio = pool.open_file(io.BytesIO(FLAC), ANY)
    with audio:
        next(audio.blocks())
    assert pool._busy == 0
    assert list(audio.unlimited) == []


@pytest.mark.parametrize("whole", [False, True])
def test_file_is_freed_with_its_last_reference(pool: DecoderPool, whole: bool) -> None:
    gc.collect()
    with uncollected():
        with pool.open_file(io.BytesIO(FLAC), ANY) as audio:
            blocks = audio.blocks()
            assert len(list(blocks) if whole else next(blocks))
        file = weakref.ref(audio)
        del audio, blocks
        assert file() is None


def wav(rate: int) -> BinaryIO:
    return io.BytesIO(encoded(noise(rate), rate, "FLAC"))


@pytest.mark.parametrize("rate", list(filter(None, SENTENCES)))
def test_audio_that_breaks_decoder_is_rejected(pool: DecoderPool, rate: int) -> None:
    with pytest.raises(AudioError, match=SENTENCES[rate]):
        samples(pool.open_file(wav(rate), ANY))
    assert pool._busy == 0
    assert len(samples(pool.open_file(wav(RATE), ANY))) == RATE


@pytest.mark.parametrize(("signal", "times"), [(Signals.SIGKILL, 4), (Signals.SIGSTOP, 1)])
def test_killed_or_stopped_decoder_is_replaced(pool: DecoderPool, signal: Signals, times: int) -> None:
    """In the middle of its file, without repeating samples. External kills are not the audio's fault."""
    long = encoded(noise(120 * RATE), RATE, "FLAC")
    with pool.open_file(io.BytesIO(long), ANY) as audio:
        blocks = audio.blocks()
        got = []
        for _ in range(times):
            got.append(next(blocks))
            psutil.Process(audio._decoder.child.number).send_signal(signal)  # type: ignore[attr-defined]
        got += list(blocks)
    assert np.array_equal(np.concatenate(got), samples(decode.open_file(io.BytesIO(long), ANY)))


@pytest.mark.parametrize("coder", OGG)
def test_replaced_decoder_finds_the_same_damage(pool: DecoderPool, coder: str) -> None:
    damaged = encoded(noise(30 * RATE), RATE, "OGG", coder) + flipped(encoded(noise(60 * RATE), RATE, "OGG", coder))
    want = decode.open_file(io.BytesIO(damaged), ANY)
    wanted, error = until_it_breaks(want)
    assert 50 < len(wanted) / RATE < 70
    got = []
    with pool.open_file(io.BytesIO(damaged), ANY) as audio:
        blocks = audio.blocks()
        for _ in range(3):
            got.append(next(blocks))
            audio._decoder.child.kill()  # type: ignore[attr-defined]
        with pytest.raises(AudioError, match=f"^{error}$"):
            got.extend(blocks)
    assert np.array_equal(np.concatenate(got), wanted)
    assert audio.broken_at == want.broken_at


def killing(audio: AudioFile) -> None:
    """Read a file, and kill its decoder after each block."""
    for _ in audio.blocks():
        audio._decoder.child.kill()  # type: ignore[attr-defined]


def test_repeatedly_killed_decoder_fails_file(pool: DecoderPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.decoders.pool.KILLS", 3)
    with pool.open_file(io.BytesIO(encoded(noise(120 * RATE), RATE, "FLAC")), ANY) as audio:
        with pytest.raises(AudioError, match="its decoder ended without an answer"):
            killing(audio)
        assert audio._kills == 3  # type: ignore[attr-defined]


@pytest.mark.parametrize("stuck", [True, False])
def test_pause_of_whole_service_does_not_count(monkeypatch: pytest.MonkeyPatch, stuck: bool) -> None:
    """A paused container stops both; the decoder has done nothing wrong."""
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    child = mock.Mock(spec=Child, processor_seconds=lambda: 0.1, is_stuck=lambda: stuck)
    watch = Watch(child, Deadlines(processor=1, idle=2, wall=3))
    faults = []
    for seconds in (0.5, 600, 0.5, 0.5, 0.5, 0.5):
        now += seconds
        faults.append(watch.fault())
    assert faults == [None, None, None, *([IDLE, IDLE] if stuck else [None, None]), TOO_LONG]


def test_decoder_killed_at_startup_is_replaced(pool: DecoderPool) -> None:
    greet, dead = DecoderProcess.greet, iter([True])

    def greet_later(decoder: DecoderProcess) -> None:
        if next(dead, False):
            raise DecoderDied
        greet(decoder)

    with mock.patch.object(DecoderProcess, "greet", greet_later):
        assert len(samples(pool.open_file(io.BytesIO(FLAC), ANY))) == 30 * RATE


def test_killed_zygote_is_replaced(pool: DecoderPool) -> None:
    pool.start()
    assert pool._zygote._process is not None
    psutil.Process(pool._zygote._process.process).kill()
    for _ in range(3):
        assert len(samples(pool.open_file(wav(RATE), ANY))) == RATE
    pool.stop()
    assert len(samples(pool.open_file(wav(RATE), ANY))) == RATE


def test_decoders_run_outside_process_group_of_service(pool: DecoderPool) -> None:
    with pool.open_file(io.BytesIO(FLAC), ANY) as audio:
        assert os.getpgid(audio._decoder.child.number) != os.getpgrp()  # type: ignore[attr-defined]
    assert pool._zygote._process is not None
    assert os.getpgid(pool._zygote._process.process) != os.getpgrp()


def test_failed_zygote_start_raises_unavailable() -> None:
    pool = DecoderPool(zygote=Zygote((sys.executable, "-c", "pass")))
    with pytest.raises(Unavailable, match="does not start"):
        pool.open_file(wav(RATE), ANY)
    assert pool._busy == 0


@pytest.mark.parametrize("place", ["socket.socketpair", "subprocess.Popen"])
def test_zygote_that_cannot_be_forked_raises_unavailable(place: str) -> None:
    pool, refused = DecoderPool(), OSError(errno.EMFILE, "Too many open files")
    with mock.patch(f"streams.decoders.processes.{place}", side_effect=refused):
        for start in (pool.start, lambda: pool.open_file(wav(RATE), ANY)):
            with pytest.raises(Unavailable, match="no process for audio can be started: Too many open files"):
                start()
    assert pool._busy == 0


def test_failed_fork_raises_unavailable(pool: DecoderPool) -> None:
    """And no other owner loses a decoder."""
    with pool.open_file(io.BytesIO(FLAC * 4), ANY) as audio:
        refused = mock.patch("streams.decoders.decoder_process.DecoderProcess.greet", side_effect=DecoderDied)
        with refused, pytest.raises(Unavailable, match="no process for audio can be started"):
            pool.lease(None, None, 0)
        assert len(list(audio.blocks()))


HEADER = messages.Header(RATE, 1, None, decode.NO_CLAIM)


def liar(reply: messages.Reply) -> mock.Mock:
    """A compromised decoder, which sends this reply."""
    slots = np.zeros((messages.SLOTS, messages.SLOT_SAMPLES), np.float32)
    said = {"receive.return_value": reply, "processor_seconds.return_value": 0.0}
    return mock.Mock(slots=slots, requests=0, child=mock.Mock(**{"was_killed.return_value": False}), **said)


@pytest.mark.parametrize(
    "reply",
    [
        messages.Reply(HEADER),
        messages.Reply(HEADER, samples=messages.SLOT_SAMPLES + 1),
        messages.Reply(HEADER, samples=-1),
        messages.Reply(samples=1),
        messages.Reply(messages.Header(1, 1, None, decode.NO_CLAIM), samples=1),
    ],
    ids=["nothing", "too much", "less than nothing", "no header", "a rate that is none"],
)
def test_invalid_decoder_reply_raises_audio_error(monkeypatch: pytest.MonkeyPatch, reply: messages.Reply) -> None:
    pool = DecoderPool()
    monkeypatch.setattr(pool, "_fork", lambda recording: liar(reply))
    with pytest.raises(AudioError):
        pool.open_file(wav(RATE), ANY)
    assert pool._busy == 0


def test_nan_samples_from_decoder_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = liar(messages.Reply(HEADER, samples=9, end=messages.End()))
    decoder.slots[0, 4] = np.nan
    pool = DecoderPool()
    monkeypatch.setattr(pool, "_fork", lambda recording: decoder)
    with pytest.raises(AudioError, match="not all finite"):
        samples(pool.open_file(wav(RATE), ANY))


ORPHANS = """
import io, os, sys
from streams.decoders.pool import DecoderPool
from tests.audio import encoded, noise
from topics.media import parse

pool = DecoderPool()
audio = pool.open_file(io.BytesIO(encoded(noise(480000), kind="FLAC")), parse("application/octet-stream"))
print(pool._zygote._process.process, audio._decoder.child.number, flush=True)
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


def test_source_read_error_is_not_an_audio_error(pool: DecoderPool) -> None:
    with TemporaryFile() as file:
        file.write(FLAC * 4)
        audio = pool.open_file(file, ANY)
    with audio:
        # The decoder has the file open; its owner may close it.
        assert len(next(audio.blocks()))
    with pytest.raises(ConnectionError, match="the log is away"):
        pool.open_file(Broken(FLAC, after=0), ANY)


def test_background_decoders_run_at_lower_priority(pool: DecoderPool) -> None:
    background = DecoderPool(nice=7, deadlines=DEADLINES)
    with background.open_in_background(io.BytesIO(FLAC), ANY) as audio:
        next(audio.blocks())
        decoder = audio._decoder.child.number  # type: ignore[attr-defined]
        # 19 is the lowest priority, and the tests themselves may run at a low one.
        assert os.getpriority(os.PRIO_PROCESS, decoder) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + 7)
    background.stop()


def test_decoder_cpu_time_is_limited(pool: DecoderPool) -> None:
    # Its decoder takes 9 ms on an EPYC, and this thread half a millisecond.
    long = encoded(noise(60 * RATE), RATE, "MP3")
    with pool.open_file(io.BytesIO(long), ANY) as audio, pytest.raises(AudioError, match=BROKEN_LIMIT):
        list(audio.blocks(0.002))


CONFINED = """
import ctypes, mmap, os, socket, tempfile
from streams.decoders import confinement

def refused(deed):
    try:
        deed()
    except (OSError, MemoryError):
        return True

file = tempfile.TemporaryFile(buffering=0)
filtered = confinement.confine()
assert refused(lambda: os.open(os.devnull, os.O_RDONLY)), "a file was opened"
assert refused(lambda: file.write(b"x")), "a byte was written"
assert refused(lambda: bytearray(confinement.MEMORY_BYTES + (16 << 20))), "memory was had"
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


def test_decoder_environment_has_no_secrets(pool: DecoderPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EARSHOT_ADMIN_KEY", "a secret")
    pool.stop()
    with pool.open_file(io.BytesIO(FLAC), ANY):
        found = [Path(f"/proc/{decoder.pid}/environ").read_bytes() for decoder in decoders()]
    assert found
    assert b"a secret" not in b"".join(found)


def test_largest_message_fits_in_one_read() -> None:
    end = messages.End("x" * messages.FAULT_CHARACTERS * 2)
    reply = messages.Reply(
        messages.Header(384_000, 16, 2**63, decode.Claim(2**63, True)), messages.SLOT_SAMPLES, 2**62, end
    )
    assert len(messages.encode(reply)) < messages.MESSAGE_BYTES
    assert messages.reply(messages.encode(reply)) == reply
    assert len(confinement.SYSTEM_CALLS) < 250, "a filter jumps over at most 255 instructions"
