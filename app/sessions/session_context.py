"""The ports that the operations of audio sessions use."""

from collections.abc import Iterator

import msgspec

from app.cluster.lists import ProjectList
from app.http.metrics import Meters
from app.identity.authentication import Authenticator
from app.sessions.activity_counter import ActivityCounter
from app.sessions.listener_quota import ListenerQuota
from app.sessions.rendering import EventRenderer
from app.sessions.tokens import PageTokens
from topics.geometry import Geometry
from topics.ports.directory import Principal
from topics.ports.jobs import Jobs
from topics.ports.sessions import Sessions, SessionView


class SessionContext(msgspec.Struct, frozen=True):
    """The sessions as one place of the interface serves them, and what the edge itself remembers of them."""

    sessions: Sessions
    #: For those who listen to a project.
    jobs: Jobs
    list: ProjectList[SessionView]
    project_keys: Authenticator[Principal]
    tokens: PageTokens
    renderer: EventRenderer
    meters: Meters
    #: Ids of commands; none comes twice.
    commands: Iterator[str]
    #: Windows of sessions that do not choose their hop.
    geometry: Geometry
    #: Bytes of decoded data in one chunk.
    chunk_limit: int
    #: A read that waits answers with the current state after this long.
    poll_seconds: float
    #: One debug line for each accepted chunk.
    log_chunks: bool
    listeners: ListenerQuota
    activity: ActivityCounter
    #: A session needs the key of its project besides its id.
    need_key: bool = False
