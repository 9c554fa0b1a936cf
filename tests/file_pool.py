"""Workers whose loop runs in a thread, so that a test opens files in them and waits."""

import asyncio
import io
import tempfile
import threading
from collections.abc import Sequence
from functools import partial
from typing import BinaryIO, cast

from streams.audio.decode import MAX_FILE_S, AudioFile
from streams.processes.child import Deadlines
from streams.processes.zygote_process import Zygote
from streams.workers import COMMAND
from streams.workers.decoded_file import FileDecoder
from streams.workers.messages import memory_bytes, slot_bytes
from streams.workers.workers import Fork, Workers
from topics.media import Media


class FilePool:
    """Decodes files in workers of a zygote, or of another `fork`. Any thread."""

    def __init__(
        self,
        command: Sequence[str] = COMMAND,
        deadlines: Deadlines | None = None,
        nice: int = 0,
        fork: Fork | None = None,
    ) -> None:
        self.zygote = Zygote(command)
        fork = fork or partial(self.zygote.fork, memory_bytes(slot_bytes(0)))
        self.workers = Workers(0, fork, deadlines)
        self._decoder = FileDecoder(self.workers, nice)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.workers.start(), self._loop).result()

    def open_file(
        self, source: BinaryIO, media: Media, longest_s: int = MAX_FILE_S, block_samples: int | None = None
    ) -> AudioFile:
        """Open a file, or bytes in memory."""
        if not isinstance(source, io.BytesIO):
            return self._decoder.open_file(source, media, longest_s, block_samples)
        with tempfile.TemporaryFile() as file:
            file.write(source.getvalue())
            return self._decoder.open_file(cast(BinaryIO, file), media, longest_s, block_samples)

    def held(self) -> int:
        """Return how many files are open."""

        async def count() -> int:
            return len(self.workers._files)

        return asyncio.run_coroutine_threadsafe(count(), self._loop).result()

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self.workers.stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self.zygote.stop()
