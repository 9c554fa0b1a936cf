"""The process that decoders are forked from: libsndfile and numpy are loaded once, and no secret ever was there.

Standard input is a socket to the parent; `messages` has what is sent.
"""

from __future__ import annotations

import gc
import mmap
import os
import signal
import socket
import sys
import tempfile
from contextlib import suppress

import numpy as np
import soundfile

from streams.audio import decode
from streams.audio.decode import DescriptorSource
from streams.decoders import ffmpeg, messages
from streams.decoders.confinement import confine, die_with_parent
from streams.decoders.decoder import Decoder
from topics.errors import AudioError
from topics.media import Media


def serve(control: socket.socket) -> None:
    """Fork a decoder for each request until the parent closes its end."""
    silence = os.open(os.devnull, os.O_RDWR)
    control.sendall(messages.READY)
    while True:
        request, descriptors, _, _ = socket.recv_fds(control, len(messages.FORK), messages.DESCRIPTORS)
        if not request:
            return
        try:
            # Where it cannot be forked, its socket closes, and so the parent knows.
            with suppress(OSError):
                if len(descriptors) == messages.DESCRIPTORS and os.fork() == 0:
                    _become_decoder(descriptors, silence, request == messages.FORK_INBOX)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)


def _become_decoder(descriptors: list[int], silence: int, inbox: bool) -> None:
    try:
        die_with_parent()
        # Decoders print messages about damaged files; and standard input is the zygote's socket, not the decoder's.
        for standard in (0, 1, 2):
            os.dup2(silence, standard)
        memory = mmap.mmap(descriptors[1], messages.MEMORY_BYTES)
        beginning = mmap.mmap(descriptors[2], messages.BEGINNING_BYTES) if inbox else None
        Decoder(socket.socket(fileno=descriptors[0]), memory, descriptors[2], beginning).serve(confine())
    finally:
        os._exit(0)


def warm_up() -> None:
    """Decode a moment of several kinds, so that nothing is imported, compiled or opened once that is forbidden."""
    for kind, subtype in (("WAV", "FLOAT"), ("FLAC", "PCM_16"), ("OGG", "VORBIS"), ("OGG", "OPUS"), ("MP3", None)):
        with tempfile.TemporaryFile() as file:
            soundfile.write(file, np.zeros(4000, np.float32), 8000, format=kind, subtype=subtype)
            file.flush()
            source = DescriptorSource(file.fileno())
            with decode.open_file(source, Media("application/octet-stream", "any")) as audio, suppress(AudioError):
                list(audio.blocks())
    ffmpeg.warm_up()


def main() -> None:
    """Run as the child of `streams.decoders.processes.Zygote`."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the decoders
    warm_up()
    # What is here stays, and the pages that it lies on stay shared.
    gc.freeze()
    with socket.socket(fileno=sys.stdin.fileno()) as control, suppress(ConnectionError):
        serve(control)


if __name__ == "__main__":
    main()
