"""What rules of alarms cost: windows of 100 streams with 20 rules for each, over the same without rules."""

import time
from collections.abc import Iterator
from typing import Final

from benchmarks import processes
from benchmarks.cases.setup import Setup, Variant, running_service
from benchmarks.measures import Row, ratio_row
from benchmarks.plans import LivePlan
from earshot_client import AlarmRule, Client, TimeOfDay

STREAMS: Final = 100
#: Chunks per stream, fewer for the slower model.
CHUNKS: Final = {"yamnet": 30, "sed_mini": 90}
#: Windows for each second of the processor, over those without rules: a window costs at most 5 % more.
BARS: Final = {Variant("yamnet", "embedded"): 1 / 1.05, Variant("sed_mini", "embedded"): 1 / 1.05}
#: Seconds until a node knows new rules.
KNOWN_SECONDS: Final = 3.0
TAGS: Final = ("Dog_bark", "Rooster_crow", "Rain", "Sea_waves", "Fire_crackle", "Helicopter", "Chainsaw", "Baby_cry")
NIGHT: Final = TimeOfDay(begins="22:00", ends="06:00", zone="Europe/Berlin")
#: Of each kind, about sounds that both models know.
RULES: Final = (
    *(AlarmRule(name=tag, tags=(tag,), probability=0.7) for tag in TAGS),
    *(AlarmRule(name=f"{tag} at night", tags=(tag,), duration=3.0, during=NIGHT) for tag in TAGS[:4]),
    AlarmRule(name="animals", tags=("Animal",), first_of_day=True),
    AlarmRule(name="outdoors", tags=("Outdoor context",), probability=0.9),
    AlarmRule(name="loud bark", tags=("Dog_bark",), level=-30.0),
    AlarmRule(name="loud", when="loud", level=-20.0),
    AlarmRule(name="no speech", when="absent", tags=("Speech",), duration=3600.0),
    AlarmRule(name="no speech at night", when="absent", tags=("Human speech",), duration=3600.0, during=NIGHT),
    AlarmRule(name="no rain", when="absent", tags=("Rain",), duration=600.0),
    AlarmRule(name="sources", when="source", events=("source.lost", "source.back")),
)
assert len(RULES) == 20


def measure(setup: Setup) -> Iterator[Row]:
    for variant, bar in BARS.items():
        chunks = setup.size(CHUNKS[variant.model])
        with (
            running_service(variant.log, **variant.settings) as (ruled, _),
            running_service(variant.log, **variant.settings) as (plain, _),
            Client(f"http://127.0.0.1:{ruled.port}", processes.KEY) as client,
        ):
            for rule in RULES:
                client.add_alarm_rule(rule)
            time.sleep(KNOWN_SECONDS)
            plans = [LivePlan(server.target(), STREAMS, chunks) for server in (ruled, plain)]
            pairs = processes.alternate_loads(plans, setup.pairs)
            made = len(list(client.alarms()))
        row = ratio_row(f"alarms, 20 rules, {variant}", pairs, "windows", bar, "plain")
        row.beside["of the processor time without rules"], row.beside["alarms"] = 1 / row.value, made
        yield row
