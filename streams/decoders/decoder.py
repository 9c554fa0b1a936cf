"""The work of a decoder process: opens what it is asked to, and hands over the samples block by block."""

from __future__ import annotations

import io
import mmap
import os
import socket
from typing import BinaryIO, Final, cast

import numpy as np

from streams.audio import decode
from streams.decoders import messages
from streams.decoders.messages import End, Header, Hello, Reply, Request
from streams.models.protocol import Floats
from topics.errors import AudioError, AudioTooLong

#: Read from a file at a time.
BUFFER_BYTES: Final = 1 << 16


class DescriptorSource(io.RawIOBase):
    """A descriptor's file, read without its own position, which other processes share."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._at = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Read like a file."""
        data = os.pread(self._descriptor, len(buffer), self._at)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Seek like a file."""
        if whence == io.SEEK_END:
            offset += os.lseek(self._descriptor, 0, io.SEEK_END)
        elif whence == io.SEEK_CUR:
            offset += self._at
        if offset < 0:
            raise ValueError("negative position")
        self._at = offset
        return offset


class Decoder:
    """Answers the requests of one parent."""

    def __init__(self, line: socket.socket, memory: mmap.mmap, recording: int | None) -> None:
        """Use a socket and a memory as `messages` describes; requests without bytes mean the file `recording`."""
        self._line = line
        self._memory = memory
        self._recording = recording
        self._slots = np.frombuffer(memory, np.float32).reshape(messages.SLOTS, messages.SLOT_SAMPLES)

    def serve(self, filtered: bool) -> None:
        """Say hello, and answer until the parent closes its end."""
        self._line.send(messages.encode(Hello(os.getpid(), filtered)))
        while data := self._line.recv(messages.MESSAGE_BYTES):
            if not self._answer(messages.request(data)):
                return

    def _answer(self, request: Request) -> bool:
        """Return whether another request can be answered."""
        last, sent, sound = Reply(), 0, True
        try:
            source = self._source(request)
            audio = decode.open_file(source, request.media, request.longest_s, request.block_samples)
            last = Reply(Header(audio.rate, audio.channels, audio.frames))
            for block in audio.unlimited:
                # A block is announced with what comes after it: a short file is one message.
                if last.samples:
                    self._line.send(messages.encode(last))
                    last, sent = Reply(), sent + 1
                    if sent >= messages.SLOTS and self._line.recv(len(messages.NEXT)) != messages.NEXT:
                        return False
                last = self._put(block, sent % messages.SLOTS, source.tell(), last.header)
            end = End()
        except AudioError as error:
            end = End(str(error)[: messages.FAULT_CHARACTERS], isinstance(error, AudioTooLong))
        except MemoryError:
            end, sound = End(decode.BROKEN_LIMIT), False
        except OSError as error:
            end, sound = End(disk=error.errno or 0), False
        self._line.send(messages.encode(Reply(last.header, last.samples, last.position, end)))
        # Those that the parent sends for blocks before the last.
        return sound and all(self._line.recv(len(messages.NEXT)) for _ in range(min(sent, messages.SLOTS - 1)))

    def _source(self, request: Request) -> BinaryIO:
        if request.size is not None:
            return io.BytesIO(self._memory[: request.size])
        if self._recording is None:
            raise OSError("no file")
        return cast(BinaryIO, io.BufferedReader(DescriptorSource(self._recording), BUFFER_BYTES))

    def _put(self, block: Floats, slot: int, position: int, header: Header | None) -> Reply:
        self._slots[slot, : len(block)] = block
        return Reply(header, len(block), position)
