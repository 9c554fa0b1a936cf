"""Webhooks by Standard Webhooks 1.0: https://github.com/standard-webhooks/standard-webhooks."""

import base64
import binascii
import hmac
import time
from collections.abc import Iterable
from typing import Final

from streams.deliveries import messages
from streams.deliveries.http import Poster, authorization
from streams.deliveries.outcome import Outcome
from topics.alarms.alarms import Alarm
from topics.ports.alarms import Destination

PREFIX: Final = "whsec_"
AGENT: Final = (b"User-Agent", b"Earshot")
JSON: Final = (b"Content-Type", b"application/json")


def signatures(secrets: Iterable[str], id: str, timestamp: int, body: bytes) -> str:
    """Return the value of `webhook-signature`: one signature (`v1`) for each secret, in their order.

    Raises:
        ValueError: a secret is not `whsec_` and base64.
    """
    signed = b"%s.%d.%s" % (id.encode(), timestamp, body)
    return " ".join(f"v1,{base64.b64encode(hmac.digest(_key(one), signed, 'sha256')).decode()}" for one in secrets)


def _key(secret: str) -> bytes:
    try:
        return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error:
        raise ValueError("the secret of a webhook is not base64") from None


class Webhooks:
    """Sends alarms to webhooks. Loop only."""

    def __init__(self, poster: Poster) -> None:
        self._poster = poster

    async def send(self, destination: Destination, alarm: Alarm) -> Outcome:
        id, timestamp, body = alarm.id, int(time.time()), messages.body(alarm)
        try:
            signature = signatures(destination.secrets, id, timestamp, body)
        except ValueError as error:
            return Outcome(str(error))
        headers = (
            AGENT,
            JSON,
            *authorization(destination),
            (b"webhook-id", id.encode()),
            (b"webhook-timestamp", str(timestamp).encode()),
            (b"webhook-signature", signature.encode()),
        )
        return await self._poster.post(destination.url, headers, body)
