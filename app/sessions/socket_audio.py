"""The chunks of one socket on their way to the log, and their state.

Each chunk is appended on arrival, with its number, before the previous one has a verdict: the fold accepts it if its
number is the next one.
"""

import asyncio
from collections import deque
from contextlib import suppress
from functools import partial
from typing import Final

import structlog

from app.sessions.raw_audio import raw_audio
from app.sessions.session_context import SessionContext
from app.sessions.socket_messages import Captured, SourceTold
from app.sessions.socket_quota import QuotaLine, Sender
from app.sessions.source import check_raw, doubt, read_time
from app.sessions.waiting import NO_SESSION
from topics import keys, media
from topics.errors import BadRequest, EarshotError, NotOwned, Unavailable
from topics.folding import Answer, Verdict
from topics.sessions.commands import NO_SOURCE
from topics.sessions.records import Chunk, Opened, Sealed, SourceNoted
from topics.sessions.rules import SessionHead
from topics.turns import Holder

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

#: Seconds until a client is asked to reconnect because the log has no room. Most clients give up a socket that is
#: silent for 20 s.
PATIENCE_SECONDS: Final = 15.0
#: Bytes of chunks waiting for room, beyond which the socket stops reading; they go to the log together.
WAITING_BYTES: Final = 64 * 1024
#: Waiting sockets of a project from which on each sends one chunk after the other: one memory has to hold them all.
CROWD: Final = 16
#: Bytes of audio that a client may have without an acknowledgement.
UNACKNOWLEDGED_BYTES: Final = 2 * 1024 * 1024
#: Overhead of a pending chunk in bytes.
CHUNK_COST: Final = 1024


class SentAudio:
    """Appends the chunks of a socket, and evaluates their verdicts. Loop only."""

    def __init__(self, context: SessionContext, holder: Holder, line: QuotaLine, sender: Sender) -> None:
        self._context = context
        self._holder = holder
        self._session = holder.subject
        self._line = line
        self._sender = sender
        self._loop = asyncio.get_running_loop()
        #: Number of the next chunk; number below which everything is stored; and the latter as last acknowledged.
        self.next = self.stored = self._told = 0
        #: Commands without a verdict.
        self.pending = 0
        #: Why a number was refused. The socket closes once the later chunks have their verdicts.
        self._taken: str | None = None
        #: Bytes of chunks without a verdict or waiting for room, including their overhead.
        self.size = 0
        #: When the first sample of the next chunk was captured (Unix ms); 0 if the client did not tell.
        self._captured = 0
        #: Notes of the source that the session has got; and the same as last told to the client.
        self._notes = self._notes_told = 0
        #: Commands for which the log had no room, the memory reserved for them, the log's message, and the deadline.
        self._waiting: deque[Chunk | SourceNoted] = deque()
        self._waiting_bytes = 0
        self._refusal: EarshotError = Unavailable("")
        self._patience: asyncio.TimerHandle | None = None

    def begin(self, head: SessionHead, opened: Opened) -> None:
        """Continue after the session's last chunk."""
        self.next = self.stored = self._told = head.next
        declared = media.parse(opened.content_type)
        self._notes = self._notes_told = 0 if head.source is None else head.source.sent
        self._opened, self._byte_rate = opened, declared.rate * declared.frame_bytes
        self._raw = raw_audio(self._context.sessions, opened.content_type, head.received)

    @property
    def under_way(self) -> bool:
        """True while something has no verdict."""
        return bool(self.pending or self._waiting)

    @property
    def complete(self) -> bool:
        """True if everything that the client has sent is stored."""
        return self.stored == self.next

    @property
    def waits_for_quota(self) -> bool:
        """True while the log has no room for the most that may wait here."""
        is_crowded = self.under_way and self._line.waiting(self._holder.project) >= CROWD
        return is_crowded or self._waiting_bytes >= WAITING_BYTES

    @property
    def is_full(self) -> bool:
        """True while no more should be read."""
        return self.size >= UNACKNOWLEDGED_BYTES or self.waits_for_quota

    @property
    def untold(self) -> bool:
        """True while the client lacks an acknowledgement of something stored."""
        return self._told != self.stored or self._notes_told != self._notes

    def take(self, data: bytes) -> None:
        """Append the next chunk, or keep it until there is room; ignored after a number was refused.

        Raw PCM that would end the session closes the socket, and is not stored.
        """
        if self._taken is not None:
            return
        if self._raw is not None:
            try:
                self._raw.take(data)
            except BadRequest as error:
                self._sender.refuse_error(error)
                return
        self._take(Chunk(next(self._context.commands), self.next, data, captured=self._captured))
        self.next, self._captured = self.next + 1, 0

    def tell(self, message: Captured | SourceTold) -> None:
        """Note when the next chunk was captured, or what happened to the source after the earlier ones.

        Raises:
            BadRequest: the message does not fit the session.
        """
        at, warning = 0, None
        if message.time is not None:
            at = read_time("time", message.time)
            warning = doubt("time", at, message.spooled)
        if isinstance(message, Captured):
            check_raw("captured", self._opened.content_type)
            self._captured = 0 if warning else at
        elif self._opened.kind == "file":
            raise BadRequest(f"{NO_SOURCE.error}")
        elif self._taken is None:
            self._take(SourceNoted(next(self._context.commands), message.event, 0 if warning else at, message.reason))
        if warning is not None:
            self._sender.warn(warning)

    def _take(self, command: Chunk | SourceNoted) -> None:
        self.size += _cost(command)
        if self._waiting or not self._append(command):
            self._wait(command)

    def _wait(self, command: Chunk | SourceNoted) -> None:
        cost = _cost(command)
        try:
            self._line.memory.take(self._holder, cost, self._context.chunk_limit + WAITING_BYTES)
        except Unavailable as error:
            self._sender.refuse_error(error)
            return
        if not self._waiting:
            self._patience = self._loop.call_later(PATIENCE_SECONDS, self._lose_patience)
            self._line.join(self._holder.project, self._append_waiting)
        self._waiting.append(command)
        self._waiting_bytes += cost

    def seal(self) -> None:
        """Make the session read-only; everything before has its verdict.

        Raises:
            Unavailable: the log has no room, or another node owns the session.
        """
        self._send(Sealed(next(self._context.commands)))
        self.size += CHUNK_COST

    def drop(self) -> None:
        """Drop the chunks that were not appended."""
        self._waiting.clear()
        self._end_wait()

    def acknowledgement(self, head: SessionHead | None) -> list[bytes]:
        """Return the acknowledgement of newly stored chunks, or no message."""
        if not self.untold:
            return []
        notes = b',"notes":%d' % self._notes if self._notes != self._notes_told else b""
        self._told, self._notes_told = self.stored, self._notes
        behind = 0.0 if head is None else self._behind(head)
        return [b'{"type":"ack","next_chunk":%d,"behind":%a%s}' % (self.stored, behind, notes)]

    def _append(self, command: Chunk | SourceNoted) -> bool:
        """Append a command; return False if the log has no room for it now."""
        try:
            self._send(command)
        except NotOwned:
            self._sender.leave()
        except EarshotError as error:
            self._refusal = error
            return False
        return True

    def _append_waiting(self) -> bool:
        """Retry the chunks for which the log had no room; return True if none waits any more."""
        while self._waiting:
            if not self._append(self._waiting[0]):
                return False
            if self._waiting:
                self._waiting.popleft()
        self._end_wait()
        self._sender.answered()
        return True

    def _lose_patience(self) -> None:
        self._sender.refuse_error(self._refusal)

    def _end_wait(self) -> None:
        self._line.memory.give_back(self._holder, self._waiting_bytes)
        self._waiting_bytes = 0
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _send(self, command: Chunk | SourceNoted | Sealed) -> None:
        self._context.sessions.send(self._session, command, partial(self._answered, command))
        self.pending += 1

    def _answered(self, command: Chunk | SourceNoted | Sealed, answer: Answer) -> None:
        self.pending -= 1
        self.size -= _cost(command)
        if isinstance(answer, NotOwned):
            self._sender.leave()
        elif isinstance(answer, EarshotError):
            self._sender.refuse_error(answer)
        elif isinstance(command, SourceNoted) and answer.status in (204, 403, 429):
            self._notes += answer.status != 403
            if answer.error is not None:
                self._sender.warn(answer.error)
        else:
            self._judge(command, answer)
        self._sender.answered()

    def _judge(self, command: Chunk | SourceNoted | Sealed, verdict: Verdict) -> None:
        number, data = (command.sequence or 0, command.data) if isinstance(command, Chunk) else (self.stored - 1, b"")
        if verdict.status == 200:
            if self._taken is None:
                self.stored = number + 1
            self._context.meters.accepted(len(data))
            if self._context.options.log_chunks:
                log.debug("chunk accepted", session=keys.shown(self._session), next=verdict.next, size=len(data))
        elif verdict.status == 409 and self._taken is None:
            if number < verdict.next and self._is_stored(number, data):
                self.stored = number + 1
            else:
                self._taken = verdict.error or ""
                self.drop()
        elif verdict.status == 403:
            self._sender.refuse_audio()
        elif verdict.status not in (204, 409):
            self._sender.fail(verdict.status, verdict.error or NO_SESSION)
        if self._taken is not None and not self.pending:
            self._sender.fail(409, self._taken, {"next_chunk": verdict.next})

    def _is_stored(self, number: int, data: bytes) -> bool:
        with suppress(EarshotError):  # The partition has moved, or the row cannot be read.
            return self._context.sessions.same_audio(self._session, number, data)
        return False

    def _behind(self, head: SessionHead) -> float:
        """Return how many seconds of audio wait for analysis, assuming that all chunks are alike."""
        analysed = head.cursor.chunks
        waiting = head.next - analysed
        if waiting <= 0 or head.ended:
            return 0.0
        if self._byte_rate:
            seconds = head.received / head.next / self._byte_rate
        else:
            # The length of a compressed chunk is unknown before the first window.
            seconds = self._opened.audio_ms(head.windows, bool(head.predicts)) / 1000 / max(1, analysed)
        return round(waiting * seconds, 3)


def _cost(command: Chunk | SourceNoted | Sealed) -> int:
    """Return the bytes that a pending command counts for."""
    return CHUNK_COST + (len(command.data) if isinstance(command, Chunk) else 0)
