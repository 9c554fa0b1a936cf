"""What the operations of sessions need."""

from collections.abc import Iterator

import msgspec

from app.cluster.lists import ProjectList
from app.cluster.takeovers import Takeovers
from app.http.holder_quota import HolderQuota
from app.http.metrics import Meters
from app.http.turns import LongWork, LoopTurns
from app.identity.authentication import Authenticator
from app.options import EdgeOptions
from app.sessions.activity_counter import ActivityCounter
from app.sessions.rendering import EventRenderer
from app.sessions.tokens import PageTokens
from topics.geometry import Geometry
from topics.ports.alarms import Alarms
from topics.ports.directory import Principal
from topics.ports.jobs import Jobs
from topics.ports.sessions import Sessions, SessionView


class SessionContext(msgspec.Struct, frozen=True):
    """The sessions as served under one prefix, and the edge's own state for them."""

    options: EdgeOptions
    sessions: Sessions
    #: For listeners to a project.
    jobs: Jobs
    #: They outlive their sessions.
    alarms: Alarms
    list: ProjectList[SessionView]
    takeovers: Takeovers
    project_keys: Authenticator[Principal]
    tokens: PageTokens
    renderer: EventRenderer
    meters: Meters
    #: Unique ids of commands.
    commands: Iterator[str]
    #: Windows of sessions that do not choose their hop.
    geometry: Geometry
    #: Bytes of decoded data in one chunk.
    chunk_limit: int
    listeners: HolderQuota
    activity: ActivityCounter
    turns: LoopTurns
    #: For long bodies of JSON.
    decoding: LongWork
