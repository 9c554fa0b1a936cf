"""A zygote whose workers misbehave like a bad model; the level of a constant sound selects the fault."""

import ctypes
import os
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from streams.audio import decode
from streams.models import sound_engine
from streams.models.protocol import Floats
from streams.workers.__main__ import main
from tests.attacks import faulty_decoders
from tests.unit.streams.audio.engines import SAMPLES, Fingerprint

COMMAND: Final = (sys.executable, "-m", "tests.unit.streams.workers.misbehaving")
#: Samples, s16, of a level of 1/64.
LEVEL: Final = 512
RATE: Final = 16_000


def crash() -> None:
    ctypes.string_at(0)


def spin() -> None:
    while True:
        pass


def hang() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def swell() -> None:
    held = []
    while True:
        held.append(np.empty(1 << 24, np.uint8))


def write() -> None:
    for _ in range(100):
        os.write(1, b"\x81" * 4096)
        print("noise", flush=True)


def fork() -> None:
    while True:
        os.fork()


def open_a_file() -> None:
    Path("/etc/hostname").read_bytes()


def open_a_socket() -> None:
    socket.create_connection(("127.0.0.1", 9), 1)


def end_the_parent() -> None:
    os.kill(os.getppid(), 9)


def leave() -> None:
    os._exit(0)


#: The effect of a patch of constant level, by 64 times that level; 0 is silence, used for warm-up.
DEEDS: Final[tuple[Callable[[], None] | None, ...]] = (
    None, crash, spin, hang, swell, write, fork, open_a_file, open_a_socket, end_the_parent, leave,
)  # fmt: skip


def sound_of(deed: Callable[[], None]) -> bytes:
    """Return a second of raw PCM, s16 at `RATE`, that triggers a fault of the model."""
    return np.full(RATE, DEEDS.index(deed) * LEVEL, np.int16).tobytes()


class Misbehaving(Fingerprint):
    """Scores samples by their checksums; its name is that of its directory."""

    def __init__(self, directory: Path) -> None:
        super().__init__(SAMPLES, directory.name)

    def scores(self, patch: Floats) -> Floats:
        if patch.max() == patch.min() and (deed := DEEDS[round(float(patch[0]) * 64)]) is not None:
            deed()
        return super().scores(patch)


if __name__ == "__main__":
    sound_engine.OnnxSoundEngine = Misbehaving  # type: ignore[assignment,misc]
    decode.open_file = faulty_decoders.open_file
    main()
