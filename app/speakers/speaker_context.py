"""The ports that the operations of the speaker interface use."""

import msgspec

from app.cluster.forwarding import Forwarder
from app.http.metrics import Meters
from app.http.uploads import Uploads
from app.identity.authentication import Authenticator
from topics.ports.jobs import Jobs
from topics.ports.speakers import Speakers


class SpeakerContext(msgspec.Struct, frozen=True):
    """The speakers of organizations, whose ids the organization keys speak for."""

    speakers: Speakers
    #: The jobs whose transcripts voices are pointed at in, and how their owners are asked.
    jobs: Jobs
    forwarder: Forwarder
    organization_keys: Authenticator[str]
    meters: Meters
    uploads: Uploads
