"""Opens files like `streams.audio.decode`, but decodes them in other processes.

A small file, such as most chunks of a live stream, goes to an idle decoder, which takes further files; a larger one
gets a process of its own. There is one decoder per open file, so nobody waits for another's; callers bound how many
files are open.
"""

from __future__ import annotations

import io
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import BinaryIO, Final, NoReturn

from streams.audio import decode, pcm
from streams.audio.decode import BROKEN_LIMIT, MAX_FILE_S, AudioFile, OpenFile
from streams.decoders import messages
from streams.decoders.child import Deadlines, tell_unfiltered
from streams.decoders.decoder_process import DecoderDied, DecoderProcess, LimitBroken
from streams.decoders.messages import End, Header, Reply, Request
from streams.decoders.processes import Zygote
from streams.models.protocol import Floats
from topics.errors import AudioError, AudioTooLong, Unavailable
from topics.folding import KILLS
from topics.media import Media

#: Files after which a decoder ends, to discard what they left or leaked there.
MAX_REQUESTS: Final = 4096
#: Decoders that wait for their project's next file; beyond this, the one idle longest ends.
MAX_IDLE: Final = 16
#: Files up to this size are copied to a decoder; a larger one gets a new decoder.
SMALL_BYTES: Final = 1 << 20
#: Maximum number of open files: far more than this process can use.
MAX_DECODERS: Final = 128
#: For one block of samples, which normally takes some milliseconds.
DEADLINES: Final = Deadlines(processor=1.0, idle=1.0, wall=30.0)
DIED: Final = "the audio could not be read: its decoder ended without an answer"


class DecoderPool:
    """The decoders of this process. Any thread; its methods block."""

    def __init__(self, nice: int = 0, deadlines: Deadlines = DEADLINES, zygote: Zygote | None = None) -> None:
        """Start nothing yet; `nice` applies to background decoders, and `zygote` forks all of them."""
        #: Opens files in decoders of lower priority.
        self.open_in_background: OpenFile = partial(self.open_file, nice=nice)
        self._deadlines = deadlines
        self._zygote = zygote or Zygote()
        self._lock = threading.Lock()
        #: Idle decoders with the owner of their files, longest idle first.
        self._idle: deque[tuple[str, DecoderProcess]] = deque()
        self._busy = 0

    def start(self) -> None:
        """Start the zygote before the first file. Idempotent.

        Raises:
            Unavailable: it does not start.
        """
        self._zygote.start()

    def stop(self) -> None:
        """End the zygote and the idle decoders; open files break off. A later file starts it again."""
        with self._lock:
            idle, self._idle = list(self._idle), deque()
        for _, decoder in idle:
            decoder.close()
        self._zygote.stop()

    def open_file(
        self,
        source: BinaryIO,
        media: Media,
        longest_s: int = MAX_FILE_S,
        block_samples: int | None = None,
        owner: str | None = None,
        nice: int = 0,
    ) -> AudioFile:
        """Open a file like `decode.open_file`; raw PCM, which needs no decoder library, is decoded in this process.

        The source has a descriptor or holds its bytes in memory, and must not change until the file is closed. The
        decoder adds `nice` to its nice value.

        Raises:
            AudioTooLong: the header claims more than `longest_s`.
            AudioError: not the declared container, a damaged header, a header that exceeds a limit, or a file that
                crashed the decoder.
            Unavailable: no decoder is available.
            OSError: the source cannot be read.
        """
        if media.container == "raw":
            return decode.open_file(source, media, longest_s, block_samples)
        most = min(block_samples or decode.BLOCK_SAMPLES, messages.SLOT_SAMPLES)
        return DecodedFile(self, source, Request(media, longest_s, most), nice, owner)

    def lease(self, recording: int | None, owner: str | None, nice: int) -> DecoderProcess:
        """Return a decoder for one file, new or used only for files of `owner`; with `nice` added to its nice value.

        Raises:
            Unavailable: none is available.
        """
        with self._lock:
            if self._busy >= MAX_DECODERS:
                raise Unavailable("too many recordings are being decoded")
            self._busy += 1
            decoder = self._waiting(owner) if owner is not None and recording is None and not nice else None
        try:
            if decoder is None:
                decoder = self._fork(recording)
                decoder.child.give_way(nice)
            return decoder
        except BaseException:
            with self._lock:
                self._busy -= 1
            raise

    def _waiting(self, owner: str) -> DecoderProcess | None:
        for entry in reversed(self._idle):
            if entry[0] == owner:
                self._idle.remove(entry)
                return entry[1]
        return None

    def give_back(self, decoder: DecoderProcess, owner: str | None) -> None:
        """Take back a decoder; keep it for its owner's next file, unless it has no `owner` or is old."""
        with self._lock:
            self._busy -= 1
            ended = decoder if owner is None or decoder.requests >= MAX_REQUESTS else None
            if owner is not None and ended is None:
                self._idle.append((owner, decoder))
                if len(self._idle) > MAX_IDLE:
                    _, ended = self._idle.popleft()
        if ended is not None:
            ended.close()

    def _fork(self, recording: int | None) -> DecoderProcess:
        decoder = self._zygote.fork(self._deadlines, recording)
        if not decoder.filtered:
            tell_unfiltered("decoders")
        return decoder


class DecodedFile(AudioFile):
    """A file whose blocks come from a decoder, which is replaced and starts again if it dies. One thread at a time."""

    def __init__(self, pool: DecoderPool, source: BinaryIO, request: Request, nice: int, owner: str | None) -> None:
        """Open a file; raises the errors of `DecoderPool.open_file`."""
        self._nice = nice
        self._owner = owner
        self._pool = pool
        self._source = source
        self._request = request
        self._decoder: DecoderProcess | None = None
        self._reply = Reply()
        #: The decoder was forked for this file.
        self._own = False
        #: Decoders that died by themselves, and those killed from outside.
        self._deaths = self._kills = 0
        self._position = 0
        #: CPU time is requested, which costs a system call each time.
        self._metered = False
        #: CPU seconds of earlier decoders, minus what the current one spent on other files.
        self._spent = 0.0

        try:
            header = self._open()
            # The decoder has checked this, unless the file compromised it.
            decode.check_limits(header.rate, header.channels, header.frames, request.longest_s)
        except BaseException:
            self.close()
            raise
        # Its blocks and `tell` must not keep the file alive.
        weak: DecodedFile = weakref.proxy(self)
        about = header.frames, lambda: weak._position, header.claim
        super().__init__(header.rate, header.channels, DecodedFile._blocks(weak), request.longest_s, *about)

    def _open(self) -> Header:
        while True:
            try:
                self._ask()
                self._receive()
                return self._reply.header or self._raise(self._reply.end)
            except DecoderDied:
                self._discard_dead()

    def _blocks(self) -> Iterator[Floats]:
        given = 0
        while True:
            at = 0
            try:
                for block in DecodedFile._decoded(self):  # `self._decoded` would refer to the file itself.
                    # A replacement decoder cuts the same blocks; skip those already yielded.
                    at += len(block)
                    if at > given:
                        given = at
                        yield block
                return
            except DecoderDied:
                self._discard_dead()
            self._open()

    def processor_seconds(self) -> float:
        self._metered = True
        decoders = self._spent + (0.0 if self._decoder is None else self._decoder.child.processor_seconds())
        return time.thread_time() + decoders

    def close(self, reusable: bool = False) -> None:
        """Return the decoder to the pool. Idempotent."""
        decoder, self._decoder = self._decoder, None
        if decoder is not None:
            if self._metered:
                self._spent += decoder.child.processor_seconds()
            self._pool.give_back(decoder, self._owner if reusable else None)

    def _ask(self) -> None:
        small = self._source.seek(0, io.SEEK_END) <= SMALL_BYTES or isinstance(self._source, io.BytesIO)
        self._source.seek(0)
        data = self._source.read() if small else None
        if data is None:
            self._source.flush()
        owner = None if self._deaths or self._kills else self._owner
        self._decoder = self._pool.lease(self._source.fileno() if data is None else None, owner, self._nice)
        if self._metered:
            self._spent -= self._decoder.child.processor_seconds()
        if data is not None:
            self._decoder.put(data)
        self._own = data is None
        self._decoder.requests += 1
        self._decoder.send(messages.encode(self._request))

    def _decoded(self) -> Iterator[Floats]:
        """Yield the blocks of one decoder, and return it to the pool at the end."""
        number = 0
        while (decoder := self._decoder) is not None:
            reply = self._reply
            if reply.samples:
                block = decoder.slots[number % messages.SLOTS, : reply.samples].copy()
                number += 1
                self._position = reply.position
                if reply.end is None:
                    decoder.send(messages.NEXT)
                else:
                    self._finish(reply.end)
                # The file may have compromised the decoder, so its own checks prove nothing.
                yield pcm.check_plausible(block)
            if reply.end is None:
                if self._decoder is None:
                    return
                self._receive()
            elif reply.end != End():
                self._raise(reply.end)
            else:
                self._finish(reply.end)
                return

    def _receive(self) -> None:
        assert self._decoder is not None
        try:
            self._reply = self._decoder.receive()
        except LimitBroken:
            self.close()
            raise AudioError(BROKEN_LIMIT) from None
        # A compromised decoder could send empty replies for ever.
        if not (self._reply.samples or self._reply.end) or not 0 <= self._reply.samples <= messages.SLOT_SAMPLES:
            raise DecoderDied

    def _finish(self, end: End) -> None:
        # A decoder that met a limit or a disk error ends by itself.
        self.close(reusable=end.disk is None and end.fault != BROKEN_LIMIT and not self._own and not self._nice)

    def _raise(self, end: End | None) -> NoReturn:
        if end is None:
            raise DecoderDied
        self._finish(end)
        if end.disk is not None:
            raise OSError(end.disk, os.strerror(end.disk))
        raise (AudioTooLong if end.too_long else AudioError)(end.fault or DIED)

    def _discard_dead(self) -> None:
        """Release a decoder that died, so that another can try once.

        Raises:
            AudioError: a second decoder died, or too many were killed from outside.
        """
        killed = self._decoder is not None and self._decoder.child.was_killed()
        self.close()
        self._kills += killed
        self._deaths += not killed
        if self._deaths > 1 or self._kills >= KILLS:
            raise AudioError(DIED)
