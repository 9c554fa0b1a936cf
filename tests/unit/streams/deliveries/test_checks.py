"""Destinations that are refused before anything is sent."""

import pytest

from streams.deliveries.addresses import Resolver
from streams.deliveries.checks import check
from streams.deliveries.options import RETRIES, parse_networks, parse_retries
from tests.unit.streams.deliveries.alarms import destination
from topics.errors import BadRequest


async def fault(url: str, kind: str = "webhook", **options: str) -> str | None:
    try:
        check(destination(url, kind=kind, options=options), Resolver(parse_networks("10.0.0.0/8")))
    except BadRequest as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("url", "kind", "options"),
    [
        ("https://hook.example/in", "webhook", {}),
        ("http://10.1.2.3:8123/", "webhook", {}),
        ("https://8.8.8.8/", "webhook", {}),
        ("https://ntfy.sh/topic", "ntfy", {"priority": "5", "click": "https://earshot.example/"}),
        (f"https://a.example/behind/{'x' * 64}/", "ntfy", {}),
        ("mqtts://broker.example", "mqtt", {"base": "house/ears", "discovery": "ha"}),
    ],
)
async def test_good_destination_passes(url: str, kind: str, options: dict[str, str]) -> None:
    assert await fault(url, kind, **options) is None


PRIVATE = (
    "is not a public address, and deliveries go to public addresses only, unless the operator allows others "
    "(EARSHOT_DELIVERY_NETWORKS)"
)
NTFY_TOPIC = "url: the path must end with the topic, as in https://ntfy.sh/TOPIC: up to 64 of a-z, A-Z, 0-9, _ and -"
TOPIC = "must be the beginning of a topic, without # and +"


@pytest.mark.parametrize(
    ("url", "kind", "options", "error"),
    [
        ("http://192.168.1.4/", "webhook", {}, f"url: 192.168.1.4 {PRIVATE}"),
        ("mqtt://[::1]", "mqtt", {}, f"url: ::1 {PRIVATE}"),
        ("https://ntfy.sh/", "ntfy", {}, NTFY_TOPIC),
        ("https://ntfy.sh/my topic", "ntfy", {}, NTFY_TOPIC),
        ("https://ntfy.sh/küche", "ntfy", {}, NTFY_TOPIC),
        (f"https://ntfy.sh/{'x' * 65}", "ntfy", {}, NTFY_TOPIC),
        ("https://a.example/", "webhook", {"x": "1"}, "options: 'x' is unknown; webhook takes none"),
        ("https://a.example/t", "ntfy", {"x": "1"}, "options: 'x' is unknown; ntfy takes priority and click"),
        ("https://a.example/t", "ntfy", {"priority": "6"}, "options: priority must be one of 1, 2, 3, 4, 5"),
        ("https://a.example/t", "ntfy", {"click": "javascript:x"}, "options: click must be an http:// or https:// URL"),
        ("mqtt://a.example", "mqtt", {"base": "a/#"}, f"options: base {TOPIC}"),
        ("mqtt://a.example", "mqtt", {"discovery": "/"}, f"options: discovery {TOPIC}"),
    ],
)
async def test_bad_destination_is_named(url: str, kind: str, options: dict[str, str], error: str) -> None:
    assert await fault(url, kind, **options) == error


def test_default_schedule_is_that_of_the_standard() -> None:
    assert sum(parse_retries(RETRIES)) / 3600 == pytest.approx(75.585, abs=0.001)


@pytest.mark.parametrize("text", ["", "a", "1,-1", "nan", "inf", ",".join("0" * 21), "600000"])
def test_bad_schedule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be at most 20 pauses"):
        parse_retries(text)


@pytest.mark.parametrize("text", ["", "10.0.0.1/8", "a", "10.0.0.0/8;"])
def test_bad_networks_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be networks or addresses"):
        parse_networks(text)
