"""Webhooks as the public library of Standard Webhooks verifies them."""

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from streams.deliveries.webhook import Webhooks
from tests.unit.streams.clients.http_engine import Asked, HttpEngine, reply
from tests.unit.streams.deliveries.alarms import OLD_SECRET, SECRET, alarm, destination
from tests.unit.streams.deliveries.test_posts import poster


def received(*secrets: str) -> Asked:
    """Return what a receiver gets that is signed by some secrets, the newest first."""
    receiver = HttpEngine(reply(b"", 204))
    receiver.serve(
        poster, lambda to: Webhooks(to).send(destination(receiver.url, secrets=secrets), alarm(source="Küche 🔥"))
    )
    [asked] = receiver.asked
    return asked


def verified(asked: Asked, secret: str) -> object:
    return Webhook(secret).verify(asked.body, dict(asked.headers.items()))


def test_library_verifies_alarm() -> None:
    asked = received(SECRET)
    found = verified(asked, SECRET)
    assert found == asked.json
    assert asked.json["data"]["source"] == "Küche 🔥"
    with pytest.raises(WebhookVerificationError, match="No matching signature"):
        verified(asked, OLD_SECRET)


def test_library_verifies_by_either_secret_during_rotation() -> None:
    asked = received(SECRET, OLD_SECRET)
    assert verified(asked, SECRET) == verified(asked, OLD_SECRET) == asked.json


def test_library_refuses_changed_body() -> None:
    asked = received(SECRET)
    asked.body = asked.body.replace(b"smoke", b"smoky")
    with pytest.raises(WebhookVerificationError, match="No matching signature"):
        verified(asked, SECRET)
