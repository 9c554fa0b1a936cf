"""Destinations are checked when they are stored."""

from typing import Any
from unittest import mock

import msgspec
import pytest

from infra.service import alarm_settings
from streams.deliveries.addresses import Resolver
from streams.deliveries.options import parse_networks
from topics.errors import BadRequest
from topics.ports.alarms import Destination

HOOK = Destination("", "project", "hook", "webhook", "https://example.org/x", True, None)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, None),
        ({"url": "http://192.168.7.1:8123/hook"}, None),
        ({"url": "http://192.168.8.1/hook"}, "url: 192.168.8.1 is not a public address"),
        ({"url": "http://[::1]/hook"}, "url: ::1 is not a public address"),
        ({"options": {"colour": "red"}}, "options: 'colour' is unknown; webhook takes none"),
        ({"kind": "ntfy", "options": {"priority": "5", "click": "https://example.org"}}, None),
        ({"kind": "ntfy", "options": {"base": "x"}}, "ntfy takes priority and click"),
        ({"kind": "ntfy", "options": {"priority": "9"}}, "priority must be 1 to 5"),
        ({"kind": "ntfy", "url": "https://ntfy.sh/"}, "the topic is missing"),
        ({"kind": "mqtt", "url": "mqtts://broker.example.org", "options": {"base": "house"}}, None),
    ],
)
async def test_destination_is_checked_by_its_kind(change: dict[str, Any], said: str | None) -> None:
    checks = alarm_settings.TestMessages(mock.Mock(), Resolver(parse_networks("192.168.7.0/24")))
    one = msgspec.structs.replace(HOOK, **change)
    if said is None:
        checks.check(one)
    else:
        with pytest.raises(BadRequest) as refused:
            checks.check(one)
        assert said in str(refused.value)
