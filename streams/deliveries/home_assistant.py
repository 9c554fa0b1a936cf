"""Topics and messages of Home Assistant: https://www.home-assistant.io/integrations/mqtt#mqtt-discovery."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from streams.deliveries import messages
from topics.alarms.alarms import Alarm
from topics.alarms.rules import StoredRule
from topics.ports.alarms import Destination

#: Where Home Assistant looks for devices, and says that it has started.
PREFIX: Final = "homeassistant"
BASE: Final = "earshot"
#: What a topic must not have, which Home Assistant takes for no id either.
_UNSAFE: Final = re.compile(r"[^a-z0-9_-]+")
_UNSAFE_BASE: Final = re.compile(r"[^A-Za-z0-9/_-]+")
#: Characters of a source's name in its topics, for people.
SHOWN: Final = 32

_encoder: Final = msgspec.json.Encoder()


class Source(NamedTuple):
    """A name of streams in a project; all streams without one are one source."""

    project: str
    name: str | None

    @property
    def id(self) -> str:
        """A text that is safe in topics and ids, whatever the name has; it differs between projects."""
        name = _UNSAFE.sub("_", (self.name or "").lower())[:SHOWN].strip("_")
        digest = hashlib.blake2b(f"{self.project}\0{self.name}".encode(), digest_size=4).hexdigest()
        return f"{name}_{digest}" if name else digest


class Offer(NamedTuple):
    """What the device of a source has."""

    #: Names of the rules that may send its alarms.
    rules: frozenset[str]
    #: Whether they tell that the source was lost, and that it is back.
    connects: bool


class Topics:
    """The topics of a destination, the same on all nodes. Any thread."""

    def __init__(self, destination: Destination) -> None:
        given = destination.options
        base = _UNSAFE_BASE.sub("_", given.get("base", "")).strip("/") or BASE
        prefix = _UNSAFE_BASE.sub("_", given.get("discovery", "")).strip("/") or PREFIX
        #: "online" or "offline", retained: whether a node is connected.
        self.status = f"{base}/status/{destination.id}"
        self.test = f"{base}/test"
        self.birth = f"{prefix}/status"
        self._base = base
        self._prefix = prefix

    def alarm(self, source: Source) -> str:
        return f"{self._base}/{source.id}/alarm"

    def connected(self, source: Source) -> str:
        return f"{self._base}/{source.id}/connected"

    def discovery(self, source: Source) -> str:
        return f"{self._prefix}/device/earshot_{source.id}/config"


def offer(rules: Iterable[StoredRule], destination: str, source: Source, labels: Mapping[str, str]) -> Offer:
    """Return what the rules of a project send to a destination of a source with these labels."""
    applying = [
        one.rule
        for one in rules
        if one.rule.enabled
        and destination in one.rule.destinations
        and one.rule.source in (None, source.name)
        and one.rule.labels.items() <= labels.items()
    ]
    events = {event for rule in applying for event in rule.events}
    return Offer(frozenset(rule.name for rule in applying), {"source.lost", "source.back"} <= events)


def device(topics: Topics, source: Source, offered: Offer, version: str) -> bytes:
    """Return the discovery message of a source's device: an event entity, and whether it is connected if rules tell."""
    id = f"earshot_{source.id}"
    components: dict[str, Any] = {
        "alarm": {
            "platform": "event",
            "unique_id": f"{id}_alarm",
            "name": "Alarm",
            "state_topic": topics.alarm(source),
            "event_types": sorted(offered.rules),
        },
        # A component that has only its platform is removed.
        "connected": {"platform": "binary_sensor"},
    }
    if offered.connects:
        components["connected"] |= {
            "unique_id": f"{id}_connected",
            "name": "Connection",
            "device_class": "connectivity",
            "state_topic": topics.connected(source),
        }
    return _encoder.encode(
        {
            "device": {
                "identifiers": [id],
                "name": source.name or "Streams without a name",
                "manufacturer": "Earshot",
                "sw_version": version,
            },
            "origin": {"name": "Earshot", "sw_version": version},
            "availability_topic": topics.status,
            "components": components,
        }
    )


def event(alarm: Alarm) -> bytes:
    """Return the message of an event entity: its type is the name of the rule, and all else becomes attributes."""
    return _encoder.encode({"event_type": alarm.rule_name, **msgspec.structs.asdict(messages.data(alarm))})
