"""The stored embeddings of a session's or job's windows."""

from collections.abc import Iterator
from itertools import groupby
from typing import Final

import msgspec

from app.http.turns import LoopTurns
from app.identity.authentication import Authenticator
from app.identity.changed_keys import ChangedKeys
from topics.errors import BadRequest, Conflict
from topics.geometry import SENSE
from topics.jobs import payloads
from topics.jobs.options import Service
from topics.ports.directory import Principal
from topics.ports.jobs import Jobs, JobView
from topics.ports.own_sounds import OwnSoundStore
from topics.ports.sessions import Sessions, SessionView

NOT_KEPT: Final = (
    "no data to learn from was kept: set `keep_embeddings` of the project; it applies to sessions and jobs created "
    "from then on"
)
NO_SOUNDS: Final = "the job did not request sound events"
NOT_ENDED: Final = "the sound events have not ended yet"
NO_SOUND: Final = "there is no sound in this passage: mark where it is heard"
#: Windows read at a time.
SLICE: Final = 1024
#: Longest passage in milliseconds.
LONGEST_MS: Final = 30_000


class OwnSoundContext(msgspec.Struct, frozen=True):
    """The sounds, the keys, and the sessions and jobs that examples are taken from."""

    sounds: OwnSoundStore
    project_keys: Authenticator[Principal]
    changed_keys: ChangedKeys
    sessions: Sessions
    jobs: Jobs
    turns: LoopTurns


class KeptEmbeddings(msgspec.Struct, frozen=True):
    """The stored embeddings of one session or job."""

    context: OwnSoundContext
    id: str
    job: bool
    #: SHA-256 of the graph that made the embeddings.
    graph: str
    #: True if it was analysed as a recording, not as a stream.
    recording: bool
    windows: int
    window_ms: int
    step_ms: int
    #: Number of a job's portions.
    portions: int = 0

    def read(self, first: int, stop: int) -> Iterator[tuple[int, list[bytes]]]:
        """Yield (first window, embedding of each window), some windows at a time, as far as they are stored here."""
        if not self.job:
            for start in range(first, stop, SLICE):
                yield start, list(self.context.sessions.embeddings(self.id, start, min(stop, start + SLICE)))
            return
        for number in range(self.portions):
            data = self.context.jobs.portion(self.id, Service.SOUND, number)
            sounds = None if data is None else payloads.sounds(data)
            if sounds is None or not first - sounds.windows < sounds.first < stop:
                continue
            size = len(sounds.embeddings) // sounds.windows
            rows = [sounds.embeddings[size * window : size * (window + 1)] for window in range(sounds.windows)]
            skip = max(0, first - sounds.first)
            yield sounds.first + skip, rows[skip : stop - sounds.first]

    def passage(self, start_ms: int, end_ms: int) -> bytes:
        """Return the embeddings of a passage without repetitions, for the windows whose middle lies in it.

        Raises:
            BadRequest: it is empty, too long, or silent.
            Conflict: it is not analysed yet.
        """
        if not 0 < end_ms - start_ms <= LONGEST_MS:
            raise BadRequest(f"end: must be after start, by at most {LONGEST_MS // 1000} s")
        half = self.window_ms // 2
        first, stop = -(-(start_ms - half) // self.step_ms), (end_ms - half) // self.step_ms + 1
        if stop <= first:  # It lies between the middles of two windows.
            first = round(((start_ms + end_ms) / 2 - half) / self.step_ms)
            stop = first + 1
        first, stop = max(0, first), max(1, stop)
        if start_ms >= self.windows * self.step_ms + self.window_ms:
            raise Conflict("the passage is after the analysed audio")
        first = min(first, max(0, self.windows - 1))
        rows = [row for _, rows in self.read(first, min(stop, self.windows)) for row in rows]
        if not any(rows):
            raise Conflict("the passage is not analysed yet")
        embeddings = [one for one, _ in groupby(rows) if any(one)]
        if not embeddings:
            raise BadRequest(NO_SOUND)
        return b"".join(embeddings)


def of_session(context: OwnSoundContext, session: str, view: SessionView) -> KeptEmbeddings:
    """Return the stored embeddings of a session.

    Raises:
        Conflict: there are none.
    """
    opened, head = view.opened, view.head
    graph = context.sessions.graph(opened.model) if opened.hearing.choices.keep_embeddings else None
    if graph is None:
        raise Conflict(NOT_KEPT)
    recording, step = opened.kind == "file" or bool(head.predicts), opened.window_ms if head.predicts else opened.hop_ms
    return KeptEmbeddings(context, session, False, graph, recording, head.windows, opened.window_ms, step)


def of_job(context: OwnSoundContext, job: str, view: JobView) -> KeptEmbeddings:
    """Return the stored embeddings of a job.

    Raises:
        Conflict: there are none, or not yet.
    """
    accepted, entry = view.accepted, view.head.entry(Service.SOUND)
    if entry is None:
        raise Conflict(NO_SOUNDS)
    if not entry.ended:
        raise Conflict(NOT_ENDED)
    graph = context.sessions.graph(accepted.model) if accepted.hearing.choices.keep_embeddings else None
    if graph is None:
        raise Conflict(NOT_KEPT)
    last = context.jobs.portion(job, Service.SOUND, entry.portions - 1) if entry.portions else None
    sounds = None if last is None else payloads.sounds(last)
    windows = 0 if sounds is None else sounds.first + sounds.windows
    return KeptEmbeddings(context, job, True, graph, True, windows, SENSE.window_ms, SENSE.hop_ms, entry.portions)
