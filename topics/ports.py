"""The sockets in the walls: what the edge asks of the streams and of the control plane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from topics.jobs.law import JobHead
from topics.jobs.options import Service
from topics.jobs.records import Accepted, JobCommand, Part
from topics.lifecycle import Head, Verdict
from topics.media import Media
from topics.records import Command, Opened


class View(msgspec.Struct, frozen=True):
    """One consistent reading of a session."""

    opened: Opened
    head: Head


class Windows(msgspec.Struct, frozen=True):
    """Consecutive windows scored by one model."""

    #: Index of the first window.
    first: int
    #: `name@sha256 prefix` of the model; `Sessions.tags` knows its tags.
    model: str
    #: Packed scores (`topics.scores`), one byte a tag, window by window.
    scores: bytes


class Follower(Protocol):
    """A reader that waits for a session to change; registered before it reads, so that no change is missed."""

    async def changed(self, timeout: float) -> bool:
        """Wait until the session changed since the last call or since registration; False after `timeout` s.

        Raises:
            Unavailable: the partition went to another node.
        """
        ...

    def close(self) -> None:
        """Stop following; allowed twice."""
        ...


class Sessions(Protocol):
    """Audio sessions as the edge sees them. Every call may raise Unavailable; nothing was accepted then."""

    def new_id(self) -> str:
        """Return an id for a new session, one that this node owns."""
        ...

    def owner(self, session: str) -> str | None:
        """Return the URL of the node that owns a session; None for this one, and while nobody is known to."""
        ...

    async def submit(self, session: str, command: Command) -> Verdict:
        """Append the command to the log and return the verdict of the fold.

        Raises:
            Unavailable: queues are full, the log does not take the record, no owner, or no verdict in time.
        """
        ...

    def view(self, session: str) -> View | None:
        """Read a session; None when it does not exist or was deleted."""
        ...

    def windows(self, session: str, first: int, count: int) -> Sequence[Windows]:
        """Read windows [first, first + count) as far as they exist, in order."""
        ...

    def follow(self, session: str) -> Follower:
        """Register a reader that wants to wait for changes."""
        ...

    def model(self) -> str:
        """Return the model in use, `name@sha256 prefix`: it goes into `Opened` and scores the session to its end."""
        ...

    def tags(self, model: str) -> Sequence[str]:
        """Return the tags of a model, in the order of its packed scores."""
        ...

    def official_tags(self) -> Sequence[str]:
        """Return the tags of the model in use."""
        ...


class JobView(msgspec.Struct, frozen=True):
    """One consistent reading of a job that was accepted."""

    accepted: Accepted
    head: JobHead


class Jobs(Protocol):
    """Jobs as the edge sees them. Every call may raise Unavailable; nothing was accepted then."""

    def new_id(self) -> str:
        """Return an id for a new job, one that this node owns."""
        ...

    def owner(self, job: str) -> str | None:
        """Return the URL of the node that owns a job; None for this one, and while nobody is known to."""
        ...

    async def upload(self, job: str, part: Part) -> None:
        """Append a part of a job's audio; returns once it is durable, so that who awaits it keeps little in memory.

        Raises:
            Unavailable: the log does not take it, or no owner.
        """
        ...

    async def submit(self, job: str, command: JobCommand) -> Verdict:
        """Append the command to the log and return the verdict of the fold; errors as `Sessions.submit`."""
        ...

    def view(self, job: str) -> JobView | None:
        """Read a job; None when it does not exist, was removed, or is still being uploaded."""
        ...

    def portion(self, job: str, service: Service, number: int) -> bytes | None:
        """Read one portion of a service's result (`topics.jobs.payloads`)."""
        ...

    def follow(self, job: str) -> Follower:
        """Register a reader that wants to wait for changes."""
        ...

    def model(self) -> str:
        """Return the sound model for new jobs, as `Sessions.model`."""
        ...


class Probed(msgspec.Struct, frozen=True):
    """What was found in the first second of a recording."""

    #: As `topics.media.parse` reads it.
    content_type: str
    #: Container, or "raw".
    format: str
    #: Hz.
    rate: int
    channels: int
    #: What the container's header claims of the length, milliseconds; None where it does not know.
    length_ms: int | None = None


class Prober(Protocol):
    """Looks into recordings of strangers, in a process that may die of it."""

    async def probe(self, file: int, declared: Media | None) -> Probed:
        """Find the container by content and decode the first second; `file` is a descriptor of a seekable file.

        `declared` is given for raw PCM alone, which nothing can recognise.

        Raises:
            AudioTooLong: it is longer than anything that is analysed.
            AudioError: it is no audio that can be analysed.
            Unavailable: the child process cannot be had now.
        """
        ...


class Principal(msgspec.Struct, frozen=True):
    """Whom a project key speaks for."""

    project: str
    organization: str
    #: Seconds of audio that the project may have analysed in a calendar month (UTC), None for any amount.
    free_seconds: int | None = None


class Directory(Protocol):
    """The control plane's answers to the edge: whose key is this, and has its project any free seconds left?"""

    async def exhausted(self, principal: Principal) -> bool:
        """Return True when the project's free seconds of this month are spent.

        Raises:
            DirectoryDown: the store does not answer.
        """
        ...

    async def project(self, key: str) -> Principal | None:
        """Return whom a project key belongs to, None for an unknown or rotated one.

        Raises:
            DirectoryDown: the store does not answer.
        """
        ...

    async def organization(self, key: str) -> str | None:
        """Return the organization that an organization key belongs to; otherwise as `project`."""
        ...


class Profile(msgspec.Struct, frozen=True):
    """A registered speaker."""

    name: str
    #: Milliseconds since 1970, UTC.
    created_at: int
    #: Length of all voice samples together, milliseconds of audio.
    length_ms: int
    samples: int
    #: False when a sample was embedded by another model than the one in use, which cannot compare it.
    compatible: bool


class Spoken(msgspec.Struct, frozen=True):
    """One uninterrupted turn of one speaker in a recording, milliseconds from its beginning."""

    start_ms: int
    end_ms: int
    #: Empty where no speech engine answered.
    transcript: str
    #: Speakers of this recording count from 0 in order of first appearance.
    speaker: int
    #: A registered speaker, or `Unknown 0`, `Unknown 1`, …
    name: str
    #: Cosine with the nearest registered speaker, -1.0 where nobody is registered.
    score: float
    #: A registered speaker was recognised.
    known: bool
    #: Too little was said to judge the voice.
    unlabeled: bool = False


class ReEnrolled(msgspec.Struct, frozen=True):
    """What came of embedding a speaker's samples again."""

    #: Samples that the model in use has embedded now.
    done: int
    #: Samples of another model whose voice file was not kept, or can no longer be read.
    left: int


class Speakers(Protocol):
    """Registered speakers of organizations, and their recognition. Every call may raise DirectoryDown.

    `file` is the descriptor of a seekable file with a recording of a stranger; nothing of it was looked at before.
    """

    async def profiles(self, organization: str) -> Sequence[Profile]:
        """Return the speakers of an organization by name."""
        ...

    async def register(self, organization: str, speaker: str, file: int) -> Profile:
        """Add a voice sample to a speaker, who is made with the first one; all of it is done, or nothing.

        Raises:
            RuleBroken: the organization has its most speakers or the speaker their most samples, or the recording
                holds too little speech.
            AudioTooLong: the recording is longer than ten minutes.
            AudioError: it is no audio that can be read.
            EngineAway: the speaker engine does not answer.
            Unavailable: too much waits already, or the recording cannot be looked into or kept now.
        """
        ...

    async def remove(self, organization: str, speaker: str) -> None:
        """Delete a speaker, their samples and their voice files.

        Raises:
            RuleBroken: there is no such speaker.
            Unavailable: the speaker is gone, but a voice file could not be deleted yet; it is tried again until it is.
        """
        ...

    async def recognize(self, organization: str, file: int) -> Sequence[Spoken]:
        """Return who of the organization's speakers speaks when, in order of time; nothing where nobody speaks.

        Raises:
            AudioTooLong, AudioError, EngineAway, Unavailable: as `register`.
        """
        ...

    async def re_enroll(self, organization: str, speaker: str) -> ReEnrolled:
        """Embed those samples of a speaker again that another model embedded, where their voice files were kept.

        Raises:
            RuleBroken: there is no such speaker.
            EngineAway: the speaker engine does not answer; what was embedded before stays so.
            Unavailable: the voice files cannot be read now.
        """
        ...


class Health(Protocol):
    """What the probes ask."""

    def alive(self) -> str | None:
        """Return None while the process works, else why it is about to stop."""
        ...

    def ready(self) -> str | None:
        """Return None when requests can be served, else what is waited for."""
        ...


class Charge(msgspec.Struct, frozen=True):
    """One line of the usage ledger; (job, service) is its key."""

    job: str
    service: Service
    project: str
    organization: str
    audio_ms: int
    #: What did the work.
    model: str
    #: When the job was accepted, milliseconds since 1970, log time; its month (UTC) is the one that is billed.
    at_ms: int


class Ledger(Protocol):
    """Where usage is written down."""

    async def record(self, charges: Sequence[Charge]) -> None:
        """Write charges; one that is there already stays as it is.

        Raises:
            DirectoryDown: the store does not answer; nothing of it is written, or all.
        """
        ...
