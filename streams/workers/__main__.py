"""The program of the zygote from which workers are forked: what they load, and what they do."""

import gc
import mmap
import os
import socket
import sys
import tempfile
from collections import OrderedDict
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

from streams.audio import decode, ffmpeg, wav
from streams.audio.sources import DescriptorSource
from streams.memory import trim_heap
from streams.models.protocol import SoundEngine
from streams.processes import messages, zygote
from streams.processes.confinement import confine
from streams.workers.worker import Worker
from topics.errors import EngineError
from topics.media import Media

#: Address space of a worker beyond what it inherits: the state of its sessions, and arenas of the model; and of a
#: worker with a file, of which the tables of a day's recording take some 100 MB.
WORKER_BYTES: Final = 1 << 30
FILE_BYTES: Final = 256 << 20


class AudioWork:
    """Decodes audio, and analyses it with the loaded models. One thread at a time."""

    def __init__(self) -> None:
        self._engines: OrderedDict[str, SoundEngine] = OrderedDict()
        #: The last model of each directory.
        self._models: dict[Path, str] = {}

    def prepare(self) -> None:
        _prepare()

    def load(self, directory: Path) -> None:
        try:
            _prepare()
        except Exception as error:  # No fault of the model.
            raise EngineError(f"the audio kernels cannot be loaded: {type(error).__name__}: {error}") from error
        from streams.audio.warm import warm
        from streams.models import manifest
        from streams.models.sound_engine import OnnxSoundEngine

        model = self._models.get(directory)
        # A zygote that another one forked has its models, unless the directory has another one now.
        if model not in self._engines or model != manifest.read(directory).model_id:
            engine = OnnxSoundEngine(directory)
            warm(engine)
            self._models[directory] = model = engine.manifest.model_id
            self._engines[model] = engine
        self._engines.move_to_end(model)
        while len(self._engines) > messages.MOST_MODELS:
            self._engines.popitem(last=False)
        # Freeze what remains, so that its pages stay shared, after returning freed memory to the system.
        trim_heap()
        gc.freeze()

    def serve(self, line: socket.socket, memory: mmap.mmap, file: int | None) -> None:
        # A worker that wakes up does not interrupt the parent's loop, which has work for others too.
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        worker = Worker(line, memory, self._engines, file)
        worker.serve(confine(WORKER_BYTES if file is None else FILE_BYTES))


@cache
def _prepare() -> None:
    """Load what models need: ONNX Runtime and the kernels."""
    # No kernel uses SciPy. Where it is installed, numba would import it for linear algebra: 0.2 s and 10 MB. It would
    # also import what a confined worker of an installation without SciPy then lacks, and no test would notice.
    sys.modules["scipy"] = None  # type: ignore[assignment]
    from streams.audio.warm import warm_kernels
    from streams.models import sound_engine  # noqa: F401

    warm_kernels()


def _warm_up() -> None:
    """Decode a moment, so that nothing needs importing, compiling or opening after confinement."""
    with tempfile.TemporaryFile() as file:
        file.write(wav.wav_file(bytes(8000), 8000))
        file.flush()
        source = DescriptorSource(file.fileno())
        with decode.open_file(source, Media("application/octet-stream", "any")) as audio:
            list(audio.blocks())
    ffmpeg.warm_up()


def main() -> None:
    # What is loaded stays. Garbage collection would take a tenth of the time; only forked processes need it.
    gc.disable()
    _warm_up()
    zygote.serve(AudioWork())


if __name__ == "__main__":
    main()
