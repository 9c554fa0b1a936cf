"""Messages to phones by ntfy: https://docs.ntfy.sh/publish/#publish-as-json."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import msgspec

from streams.deliveries import messages
from streams.deliveries.http import Poster, authorization
from streams.deliveries.outcome import Outcome
from streams.deliveries.webhook import AGENT, JSON
from topics.alarms.alarms import Alarm
from topics.ports.alarms import Destination

PRIORITIES: Final = ("1", "2", "3", "4", "5")
#: Makes the phone ring.
PRIORITY: Final = 4
#: Characters of a title and of a message; ntfy turns messages of more than 4,096 bytes into files.
MOST_TITLE: Final = 200
MOST_TEXT: Final = 1000
#: Names of ntfy's pictures.
PICTURES: Final[Mapping[str, str]] = {"source.back": "white_check_mark", "source.lost": "electric_plug"}
PICTURE: Final = "loudspeaker"

_encoder: Final = msgspec.json.Encoder()


class Notification(msgspec.Struct, frozen=True, omit_defaults=True):
    """The fields of a message; servers ignore those that they do not know yet."""

    topic: str
    title: str
    message: str
    priority: int
    tags: tuple[str, ...]
    #: The phone shows messages with the same one once (from ntfy 2.16 on).
    sequence_id: str
    click: str | None = None


class Ntfy:
    """Sends alarms to topics of ntfy. Loop only."""

    def __init__(self, poster: Poster) -> None:
        self._poster = poster

    async def send(self, destination: Destination, alarm: Alarm) -> Outcome:
        """Post to the server of the topic, which is the last part of the URL's path."""
        url = urlsplit(destination.url)
        path, _, topic = url.path.rstrip("/").rpartition("/")
        notification = Notification(
            topic,
            messages.title(alarm)[:MOST_TITLE],
            messages.sentence(alarm)[:MOST_TEXT],
            int(priority) if (priority := destination.options.get("priority", "")) in PRIORITIES else PRIORITY,
            (PICTURES.get(alarm.what, PICTURE),),
            alarm.id,
            destination.options.get("click"),
        )
        server = url._replace(path=f"{path}/", query="", fragment="").geturl()
        return await self._poster.post(
            server, (AGENT, JSON, *authorization(destination)), _encoder.encode(notification)
        )
