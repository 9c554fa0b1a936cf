"""Checks raw PCM before it goes to the log, so that no chunk which is stored can end its session."""

from typing import Final

from topics import media
from topics.errors import AudioError, BadRequest
from topics.media import Media
from topics.ports.sessions import Sessions, SessionView
from topics.sessions.records import Chunk
from topics.sessions.rules import SessionState

#: Bytes at the beginning of a stream in which a container is looked for, however they are cut into messages.
BEGINNING_BYTES: Final = 512


class RawAudio:
    """The bytes of one session's raw PCM, in order. Loop only."""

    def __init__(self, sessions: Sessions, declared: Media, received: int) -> None:
        """Continue after `received` bytes."""
        self._sessions = sessions
        self._declared = declared
        self._head: bytes | None = None if received else b""
        #: The beginning of a sample. What others sent of it is unknown; zeros cannot make a float implausible.
        self._rest = bytes(received % declared.sample_bytes)

    def take(self, data: bytes) -> None:
        """Check the next bytes.

        Raises:
            BadRequest: the session begins like a container, or a float is not plausible. Nothing was taken.
        """
        try:
            if self._head is not None:
                head = self._head + data if self._head else data
                self._sessions.check_beginning(self._declared, head)
                self._head = head if len(head) < BEGINNING_BYTES else None
            if self._declared.sample_format.startswith("f"):
                samples = self._rest + data
                whole = len(samples) - len(samples) % self._declared.sample_bytes
                self._sessions.check_floats(self._declared, samples[:whole])
                self._rest = samples[whole:]
        except AudioError as error:
            raise BadRequest(str(error)) from None


def raw_audio(sessions: Sessions, content_type: str, received: int) -> RawAudio | None:
    """Return the checks of a session after `received` bytes, or None if it is not raw PCM."""
    declared = media.parse(content_type)
    return RawAudio(sessions, declared, received) if declared.container == "raw" else None


def check_chunk(sessions: Sessions, view: SessionView, chunk: Chunk) -> None:
    """Check a chunk that comes by a request, if it is raw PCM and may be accepted.

    Raises:
        BadRequest: it would end the session, or cut a sample, unless it is the end of a stream with a `total_size`.
    """
    head, declared = view.head, media.parse(view.opened.content_type)
    number = head.next if chunk.sequence is None else chunk.sequence
    if declared.container != "raw" or head.state is not SessionState.WRITABLE or number < head.next:
        return
    frame = declared.frame_bytes
    # If earlier chunks are under way, they are taken for whole frames. Each window of `/predict` stands alone.
    received = 0 if chunk.predict else head.received if number == head.next else frame
    RawAudio(sessions, declared, received).take(chunk.data)
    size, cut = len(chunk.data), (received + len(chunk.data)) % frame
    is_last = head.total_size is not None and received + size >= head.total_size and not chunk.predict
    if head.kind == "stream" and cut and not is_last:
        before = f" and the {received % frame} that wait before it" if received % frame else ""
        raise BadRequest(
            f"data: the chunk cuts a sample: its {size} bytes{before} are not a multiple of {frame}, the bytes of one "
            f"sample of every channel; move its last {min(cut, size)} bytes to the beginning of the next chunk"
        )
