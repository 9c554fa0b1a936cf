"""The ports that the operations of jobs use."""

from collections.abc import Iterator

import msgspec

from app.cluster.forwarding import Forwarder
from app.cluster.lists import ProjectList
from app.http.metrics import Meters
from app.http.uploads import Uploads
from app.identity.authentication import Authenticator
from app.jobs.downloads import Downloads
from app.jobs.rendering import ResultRenderer
from topics.ports.directory import AudioLink, Directory, Principal
from topics.ports.jobs import Jobs, JobView
from topics.ports.prober import Prober


class JobContext(msgspec.Struct, frozen=True):
    """The ports that jobs need, and what the edge itself remembers."""

    jobs: Jobs
    list: ProjectList[JobView]
    directory: Directory
    prober: Prober
    project_keys: Authenticator[Principal]
    renderer: ResultRenderer
    meters: Meters
    #: Ids of commands; none comes twice.
    commands: Iterator[str]
    forwarder: Forwarder
    uploads: Uploads
    audio_links: Authenticator[AudioLink]
    downloads: Downloads
    #: Turns Idempotency-Keys into ids of jobs.
    secret: bytes
    #: Bytes of audio in a job that is sent as JSON, which is held in memory.
    analyze_limit: int
    #: Bytes of a whole multipart body, which goes to the spool.
    upload_limit: int
    #: The models of speech that a job may name.
    speech_models: frozenset[str]
    #: How long the audio of a job stays readable after its acceptance: by default, and at most.
    keep_audio_ms: int = 0
    longest_keep_audio_ms: int = 0
    #: Seconds to wait for a picture.
    poll_seconds: float = 9.0
    #: The event stream and the captions of a job need the key of its project too.
    reads_need_key: bool = False
