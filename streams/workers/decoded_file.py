"""Opens files like `streams.audio.decode`, but decodes them in workers; for threads, which wait for the loop."""

import asyncio
import os
import time
import weakref
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, BinaryIO, Final, TypeVar

import msgspec
import numpy as np

from streams.audio import decode, pcm
from streams.audio.decode import BROKEN_LIMIT, MAX_FILE_S, MOST_NOTES, AudioFile
from streams.processes.child import TOO_LONG
from streams.processes.deaths import Deaths
from streams.workers.messages import Block, Forgotten, Read
from streams.workers.process import LONGEST_FAULT, Call, WorkerDied, error_of
from streams.workers.worker_slot import WorkerSlot
from streams.workers.workers import READING, Workers
from topics.errors import AudioError
from topics.media import Media

T = TypeVar("T")
#: A block and its samples.
Decoded = tuple[Block, bytearray]

#: Samples of a block at most, over all channels before they are mixed.
MOST_SAMPLES: Final = 1 << 17
INVALID: Final = "the audio could not be read: the process that decodes it gave an invalid answer"


class FileDecoder:
    """Opens files in workers. Any thread but the loop's; its methods block."""

    def __init__(self, workers: Workers, nice: int = 0) -> None:
        """Have the workers add `nice` to their nice value."""
        self._workers = workers
        self._nice = nice

    def open_file(
        self, source: BinaryIO, media: Media, longest_s: int = MAX_FILE_S, block_samples: int | None = None
    ) -> AudioFile:
        """Open a file like `decode.open_file`; raw PCM, which needs no decoder library, is decoded in this process.

        The source has a descriptor, and must not change until the file is closed.

        Raises:
            AudioTooLong: the header claims more than `longest_s`.
            AudioError: not the declared container, a damaged header, a header that exceeds a limit, or a file that
                crashed its workers.
            Unavailable: no worker is available.
            OSError: the source cannot be read.
        """
        if media.container == "raw":
            return decode.open_file(source, media, longest_s, block_samples)
        source.flush()
        most = min(block_samples or decode.BLOCK_SAMPLES, MOST_SAMPLES)
        return DecodedFile(self._workers, source, Read(0, media, longest_s, most), self._nice)


class DecodedFile(AudioFile):
    """A file whose blocks come from a worker, which is replaced and starts again if it dies. One thread at a time."""

    def __init__(self, workers: Workers, source: BinaryIO, request: Read, nice: int) -> None:
        """Open a file; raises the errors of `FileDecoder.open_file`."""
        self._workers = workers
        self._request = request
        self._deaths = Deaths()
        self._position = 0
        file = os.fdopen(os.dup(source.fileno()), "rb")
        self._slot = _in_loop(workers, _open(workers, file, nice)).result()
        # Also when nothing refers to this file any more.
        self._release = weakref.finalize(self, _close, workers, self._slot)
        try:
            header = self._begin()[0].header
            if header is None:
                raise AudioError(INVALID)
            # The worker has checked this, unless the file compromised it.
            decode.check_limits(header.rate, header.channels, header.frames, request.longest_s)
        except BaseException:
            self.close()
            raise
        # Its blocks and `tell` must not keep the file alive.
        weak: DecodedFile = weakref.proxy(self)
        about = header.frames, lambda: weak._position, header.kind
        super().__init__(header.rate, header.channels, DecodedFile._blocks(weak), request.longest_s, *about)

    def processor_seconds(self) -> float:
        process = self._slot.process
        return time.thread_time() + (0.0 if process is None else process.child.processor_seconds())

    def close(self) -> None:
        """End the worker. Idempotent."""
        self._release()

    def _begin(self) -> Decoded:
        """Return the first block, and have the worker decode the next one."""
        while True:
            self._next = self._ask(0)
            try:
                self._first = self._receive()
                return self._first
            except WorkerDied as died:
                self._note(died)

    def _blocks(self) -> Iterator[decode.Block]:
        given = 0
        while True:
            at = 0
            try:
                for block in DecodedFile._decoded(self):  # `self._decoded` would refer to the file itself.
                    # A replacement cuts the same blocks; skip those already yielded.
                    at += block if isinstance(block, int) else len(block)
                    if at > given:
                        given = at
                        yield block
                return
            except WorkerDied as died:
                self._note(died)
            self._begin()

    def _decoded(self) -> Iterator[decode.Block]:
        """Yield the blocks of one worker, and end it at the end."""
        number, (block, samples) = 0, self._first
        while self._release.alive:
            number += 1
            if block.notes is None:
                self._next = self._ask(number)
            self._position = block.position
            if block.silence:
                yield block.silence
            # The file may have compromised the worker, so its own checks prove nothing.
            yield pcm.check_plausible(np.frombuffer(samples, np.float32))
            if block.notes is not None:
                self.notes = [note[:LONGEST_FAULT] for note in block.notes[:MOST_NOTES]]
                self.close()
            elif self._release.alive:
                block, samples = self._receive()

    def _ask(self, number: int) -> Future[Decoded]:
        return _in_loop(
            self._workers, _read(self._workers, self._slot, msgspec.structs.replace(self._request, number=number))
        )

    def _receive(self) -> Decoded:
        try:
            block, samples = self._next.result()
        except WorkerDied:
            raise
        except BaseException:
            self.close()
            raise
        size = len(samples)
        # A compromised worker could send empty blocks for ever.
        is_empty = not (size or block.silence or block.notes is not None)
        if is_empty or size != block.length or size % 4 or size > 4 * MOST_SAMPLES or block.silence < 0:
            self.close()
            raise AudioError(INVALID)
        return block, samples

    def _note(self, died: WorkerDied) -> None:
        """Count the death of a worker, so that another can try.

        Raises:
            AudioError: it took too long, or too many have died.
        """
        sentence = BROKEN_LIMIT if died.fault == TOO_LONG else self._deaths.note(died.killed)
        if sentence is not None:
            self.close()
            raise AudioError(sentence)


def _in_loop(workers: Workers, work: Coroutine[Any, Any, T]) -> Future[T]:
    return asyncio.run_coroutine_threadsafe(work, workers.home)


async def _open(workers: Workers, file: BinaryIO, nice: int) -> WorkerSlot:
    return workers.open_slot(file, nice=nice, deadlines=READING)


async def _read(workers: Workers, slot: WorkerSlot, request: Read) -> Decoded:
    future = asyncio.get_running_loop().create_future()
    call = Call(lambda _: request, (), future, None, large=True)
    answer = await workers.ask(slot, "", call)
    if isinstance(answer, Forgotten):  # The one that had read so far died between two blocks.
        raise WorkerDied(killed=True)
    if not isinstance(answer, Block):
        raise error_of(answer)
    return answer, call.samples


def _close(workers: Workers, slot: WorkerSlot) -> None:
    with suppress(RuntimeError):  # The loop has ended, and with it the worker.
        workers.home.call_soon_threadsafe(workers.close_slot, slot)
