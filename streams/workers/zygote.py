"""The process from which decoders and workers are forked: it loads libraries and models once and never sees a secret.

Standard input is a socket to the parent; `streams.decoders.messages` defines the messages. Forked processes share the
memory of libraries and models.
"""

import gc
import mmap
import os
import signal
import socket
import sys
import tempfile
import time
from collections import OrderedDict
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
import soundfile

from streams.audio import decode
from streams.audio.sources import DescriptorSource
from streams.decoders import ffmpeg, messages
from streams.decoders.confinement import confine, die_with_parent
from streams.decoders.decoder import Decoder
from streams.memory import trim_heap
from streams.models.protocol import SoundEngine
from streams.workers.worker import Worker
from topics.errors import AudioError, EngineError
from topics.media import Media

#: Address space of a worker beyond what it inherits: the state of its sessions, and arenas of the model.
WORKER_BYTES: Final = 1 << 30
#: How long an ended child can be looked at; the most if others end meanwhile.
REAP_SECONDS: Final = 0.25
MOST_REAP_SECONDS: Final = 2.0


class Zygote:
    """Loads models and forks a process per request, until the parent closes its end. One thread at a time."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._silence = os.open(os.devnull, os.O_RDWR)
        self._engines: OrderedDict[str, SoundEngine] = OrderedDict()

    def serve(self) -> None:
        self._control.sendall(messages.READY)
        while True:
            request, descriptors, _, _ = socket.recv_fds(self._control, len(messages.FORK), messages.DESCRIPTORS)
            if not request:
                return
            if request == messages.PREPARE:
                prepare()
                continue
            if request == messages.LOAD:
                self._answer_load()
                continue
            try:
                # If the fork fails, its socket closes, and so the parent notices.
                with suppress(OSError):
                    if len(descriptors) == messages.DESCRIPTORS and os.fork() == 0:
                        self._become(request, descriptors)
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)

    def _answer_load(self) -> None:
        length = int.from_bytes(self._control.recv(messages.LENGTH_BYTES, socket.MSG_WAITALL), "little")
        directory = Path(os.fsdecode(self._control.recv(length, socket.MSG_WAITALL)))
        try:
            self._load(directory)
            fault = b""
        except EngineError as error:
            fault = str(error).encode()
        except Exception as error:
            fault = f"{directory}: {type(error).__name__}: {error}".encode()
        self._control.sendall(len(fault).to_bytes(messages.LENGTH_BYTES, "little") + fault)

    def _load(self, directory: Path) -> None:
        prepare()
        from streams.audio.warm import warm
        from streams.models.sound_engine import OnnxSoundEngine

        engine = OnnxSoundEngine(directory)
        warm(engine)
        model = engine.manifest.model_id
        self._engines[model] = engine
        self._engines.move_to_end(model)
        while len(self._engines) > messages.MOST_MODELS:
            self._engines.popitem(last=False)
        # Freeze what remains, so that its pages stay shared, after returning freed memory to the system.
        trim_heap()
        gc.freeze()

    def _become(self, request: bytes, descriptors: list[int]) -> None:
        try:
            die_with_parent()
            gc.enable()
            # Decoders print messages about damaged files, and standard input is the zygote's socket, not the child's.
            for standard in (0, 1, 2):
                os.dup2(self._silence, standard)
            line = socket.socket(fileno=descriptors[0])
            if request == messages.FORK_WORKER:
                # A worker that wakes up does not interrupt the parent's loop, which has work for others too.
                with suppress(OSError):
                    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
                memory = mmap.mmap(descriptors[1], 0)
                Worker(line, memory, self._engines).serve(confine(WORKER_BYTES))
            else:
                memory = mmap.mmap(descriptors[1], messages.MEMORY_BYTES)
                inbox = request == messages.FORK_INBOX
                beginning = mmap.mmap(descriptors[2], messages.BEGINNING_BYTES) if inbox else None
                Decoder(line, memory, descriptors[2], beginning).serve(confine())
        finally:
            os._exit(0)


class Reaper:
    """Reaps ended children late, so that the parent can first see how each ended. One thread at a time."""

    def __init__(self) -> None:
        #: When the first child ended that is not reaped, and the last, monotonic.
        self._first = self._last = 0.0

    def note_end(self, number: int, frame: object) -> None:
        self._last = time.monotonic()
        if not signal.getitimer(signal.ITIMER_REAL)[0]:
            self._first = self._last
            signal.setitimer(signal.ITIMER_REAL, REAP_SECONDS)

    def reap(self, number: int, frame: object) -> None:
        due = min(self._last + REAP_SECONDS, self._first + MOST_REAP_SECONDS)
        if (wait := due - time.monotonic()) > 0:
            signal.setitimer(signal.ITIMER_REAL, wait)
            return
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


@cache
def prepare() -> None:
    """Load what models need and decoders do not: ONNX Runtime and the kernels."""
    # No kernel uses SciPy. Where it is installed, numba would import it for linear algebra: 0.2 s and 10 MB. It would
    # also import what a confined worker of an installation without SciPy then lacks, and no test would notice.
    sys.modules["scipy"] = None  # type: ignore[assignment]
    from streams.audio.warm import warm_kernels
    from streams.models import sound_engine  # noqa: F401

    warm_kernels()


def warm_up() -> None:
    """Decode a moment of several formats, so that nothing needs importing, compiling or opening after confinement."""
    for kind, subtype in (("WAV", "FLOAT"), ("FLAC", "PCM_16"), ("OGG", "VORBIS"), ("OGG", "OPUS"), ("MP3", None)):
        with tempfile.TemporaryFile() as file:
            soundfile.write(file, np.zeros(4000, np.float32), 8000, format=kind, subtype=subtype)
            file.flush()
            source = DescriptorSource(file.fileno())
            with decode.open_file(source, Media("application/octet-stream", "any")) as audio, suppress(AudioError):
                list(audio.blocks())
    ffmpeg.warm_up()


def main() -> None:
    """Run as the child of `streams.decoders.processes.ZygoteProcess`."""
    # What is loaded stays. Garbage collection would take a tenth of the time; only forked processes need it.
    gc.disable()
    reaper = Reaper()
    signal.signal(signal.SIGCHLD, reaper.note_end)
    signal.signal(signal.SIGALRM, reaper.reap)
    warm_up()
    gc.freeze()
    with socket.socket(fileno=sys.stdin.fileno()) as control, suppress(ConnectionError):
        Zygote(control).serve()


if __name__ == "__main__":
    main()
