"""What the operations of speakers need."""

import msgspec

from app.cluster.forwarding import Forwarder
from app.http.metrics import Meters
from app.http.turns import LoopTurns
from app.http.uploads import Uploads
from app.identity.authentication import Authenticator
from topics.ports.jobs import Jobs
from topics.ports.speakers import Speakers


class SpeakerContext(msgspec.Struct, frozen=True):
    """The speakers of organizations; an organization key gives access to one of them."""

    speakers: Speakers
    #: The jobs whose transcripts contain voices to register, and the forwarder to the nodes that own them.
    jobs: Jobs
    forwarder: Forwarder
    organization_keys: Authenticator[str]
    meters: Meters
    uploads: Uploads
    turns: LoopTurns
