"""The work of a decoder process: opens requested files and sends their samples in blocks."""

import mmap
import os
import socket

import numpy as np

from streams.audio import decode
from streams.audio.sources import DescriptorSource
from streams.decoders import confinement, ffmpeg, messages
from streams.decoders.messages import End, Header, Hello, Reply, Request
from topics.errors import AudioError, AudioTooLong


class Decoder:
    """Answers the requests of one parent. One thread at a time."""

    def __init__(self, line: socket.socket, memory: mmap.mmap, file: int, beginning: mmap.mmap | None = None) -> None:
        """Use a socket, a memory, a file's descriptor and an inbox's beginning, as `messages` describes."""
        self._line = line
        self._file = file
        self._beginning = beginning
        self._slots = np.frombuffer(memory, np.float32).reshape(messages.SLOTS, messages.SLOT_SAMPLES)

    def serve(self, filtered: bool) -> None:
        """Send the greeting, then answer until the parent closes its end."""
        self._line.send(messages.encode(Hello(os.getpid(), filtered)))
        while data := self._line.recv(messages.MESSAGE_BYTES):
            if not self._answer(messages.request(data)):
                return

    def _answer(self, request: Request) -> bool:
        """Answer a request; return whether another can be answered."""
        last, sent, sound = Reply(), 0, True
        try:
            source = DescriptorSource(self._file, self._beginning)
            open_file = ffmpeg.open_file if ffmpeg.is_needed(source) else decode.open_file
            audio = open_file(source, request.media, request.longest_s, request.block_samples)
            last = Reply(Header(audio.rate, audio.channels, audio.frames, audio.claim))
            for block in audio.unlimited:
                # Announce a slot when the next block does not fit, or at the end: a short file takes one message.
                if last.samples and last.samples + len(block) > request.block_samples:
                    self._line.send(messages.encode(last))
                    last, sent = Reply(), sent + 1
                    if sent >= messages.SLOTS and self._line.recv(len(messages.NEXT)) != messages.NEXT:
                        return False
                samples = last.samples + len(block)
                self._slots[sent % messages.SLOTS, last.samples : samples] = block
                last = Reply(last.header, samples, source.tell())
            end = End()
        except AudioError as error:
            end = End(str(error)[: messages.FAULT_CHARACTERS], isinstance(error, AudioTooLong))
        except MemoryError:
            end, sound = End(decode.BROKEN_LIMIT), False
        except OSError as error:
            refused = error.errno in confinement.REFUSALS
            end, sound = End(decode.BROKEN_LIMIT) if refused else End(disk=error.errno or 0), False
        self._line.send(messages.encode(Reply(last.header, last.samples, last.position, end)))
        # Receive the `NEXT` messages for blocks before the last.
        return sound and all(self._line.recv(len(messages.NEXT)) for _ in range(min(sent, messages.SLOTS - 1)))
