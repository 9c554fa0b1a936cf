"""A decoder as seen by its parent, which sends requests, watches it and kills it."""

import mmap
import os
import socket
import struct
import time
from typing import Final

import msgspec
import numpy as np

from streams.decoders import messages
from streams.decoders.child import TOO_LONG, Child, Deadlines, Watch

#: Forking a decoder takes some milliseconds.
FORK_SECONDS: Final = 5.0
_TIMEVAL: Final = struct.Struct("@ll")


class DecoderDied(Exception):
    """A decoder ended without an answer, or does nothing."""


class LimitBroken(Exception):
    """A decoder exceeded its time limit."""


class DecoderProcess:
    """One decoder, with the socket and memory shared with it. One thread at a time."""

    def __init__(self, line: socket.socket, memory: int, inbox: int | None, deadlines: Deadlines) -> None:
        """Take over a socket and the descriptors of a memory and an inbox."""
        self._line = line
        self._inbox = inbox
        self._deadlines = deadlines
        look_seconds = min(0.25, deadlines.idle / 2, deadlines.processor / 2)
        # The kernel's read timeout, with which Python makes no additional system call.
        micro = int(1e6 * look_seconds)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TIMEVAL.pack(micro // 10**6, micro % 10**6))
        self._memory = mmap.mmap(memory, messages.MEMORY_BYTES)
        os.close(memory)
        self.slots = np.frombuffer(self._memory, np.float32).reshape(messages.SLOTS, messages.SLOT_SAMPLES)
        self.requests = 0
        self.child = Child(0)
        self.filtered = False

    def greet(self) -> None:
        """Wait for its greeting.

        Raises:
            DecoderDied: it was not forked.
            LimitBroken: it takes too long.
        """
        until = time.monotonic() + FORK_SECONDS
        while True:
            try:
                data = self._line.recv(messages.MESSAGE_BYTES)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise LimitBroken from None
        if not data:
            raise DecoderDied
        greeting = messages.hello(data)
        self.child, self.filtered = Child(greeting.process), greeting.filtered

    def put(self, data: bytes | memoryview) -> None:
        """Write a file to the inbox; no request may be in progress."""
        assert self._inbox is not None
        os.pwrite(self._inbox, data, 0)
        os.ftruncate(self._inbox, len(data))

    def send(self, message: bytes) -> None:
        """Send a message.

        Raises:
            DecoderDied: it has ended.
        """
        try:
            self._line.send(message)
        except OSError:
            raise DecoderDied from None

    def receive(self) -> messages.Reply:
        """Wait for the next reply.

        Raises:
            DecoderDied: it ended, sent an invalid reply, or does nothing.
            LimitBroken: it exceeded its time limit.
        """
        watch: Watch | None = None
        while True:
            try:
                # The reply nearly always arrives before the timeout.
                return messages.reply(self._line.recv(messages.MESSAGE_BYTES))
            except BlockingIOError:
                watch = watch or Watch(self.child, self._deadlines)
            except (ConnectionError, msgspec.MsgspecError):
                # An empty message is no reply either.
                raise DecoderDied from None
            if (fault := watch.fault()) is not None:
                raise LimitBroken if fault == TOO_LONG else DecoderDied

    def close(self) -> None:
        self.child.close()
        if self._inbox is not None:
            os.close(self._inbox)
            self._inbox = None
        self._line.close()
        del self.slots
        self._memory.close()
