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
    """The ports that jobs need, and the edge's own state for them."""

    jobs: Jobs
    list: ProjectList[JobView]
    directory: Directory
    prober: Prober
    project_keys: Authenticator[Principal]
    renderer: ResultRenderer
    meters: Meters
    #: Unique ids of commands.
    commands: Iterator[str]
    forwarder: Forwarder
    uploads: Uploads
    audio_links: Authenticator[AudioLink]
    downloads: Downloads
    #: Derives ids of jobs from Idempotency-Keys.
    secret: bytes
    #: Bytes of audio in a job sent as JSON, which is held in memory.
    analyze_limit: int
    #: Bytes of a whole multipart body, which goes to the spool.
    upload_limit: int
    #: Speech models that a job may name.
    speech_models: frozenset[str]
    #: How long a job's audio stays readable after acceptance: by default, and at most.
    keep_audio_ms: int = 0
    longest_keep_audio_ms: int = 0
    #: Seconds to wait for a picture.
    poll_seconds: float = 9.0
    #: The event stream and the captions of a job require the key of its project too.
    reads_need_key: bool = False
