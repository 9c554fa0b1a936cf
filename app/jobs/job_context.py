"""What the operations of jobs need."""

from collections.abc import Iterator

import msgspec

from app.cluster.forwarding import Forwarder
from app.cluster.lists import ProjectList
from app.cluster.takeovers import Takeovers
from app.http.holder_quota import HolderQuota
from app.http.metrics import Meters
from app.http.turns import LongWork, LoopTurns
from app.http.uploads import Uploads
from app.identity.authentication import Authenticator
from app.jobs.rendering import ResultRenderer
from app.options import EdgeOptions
from topics.ports.directory import AudioLink, Directory, Principal
from topics.ports.jobs import Jobs, JobView
from topics.ports.prober import Prober


class JobContext(msgspec.Struct, frozen=True):
    """The ports that jobs need, and the edge's own state for them."""

    options: EdgeOptions
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
    takeovers: Takeovers
    uploads: Uploads
    audio_links: Authenticator[AudioLink]
    downloads: HolderQuota
    turns: LoopTurns
    #: For long bodies of JSON, and for probes of recordings.
    decoding: LongWork
    probing: LongWork
