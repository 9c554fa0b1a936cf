"""Each alarm is made once and delivered at least once, across kills of the service and of a receiver that fails.

The receiver fails one attempt in three. Ids are the same in each attempt, and those of a session are numbered without
holes.
"""

import asyncio
import base64
import random
from itertools import groupby
from typing import Final

import pytest

from earshot_client import AlarmRule, Client, Destination
from tests.lengths import SEED, length
from tests.process import KEY, ServiceProcess
from tests.recovery.conftest import ON_EMBEDDED
from tests.recovery.load import Client as Sender
from tests.recovery.load import kill_on_the_way
from tests.recovery.receiver import Receiver
from tests.waiting import until
from topics import keys

SESSIONS: Final = 4
#: Rules that all find the same, at most as many as a project may have.
RULES: Final = min(100, -(-length("ALARMS", 240) // 40))
#: Loud sounds of a session, one in four seconds: a rule makes at most 60 alarms in a minute.
SOUNDS: Final = -(-length("ALARMS", 240) // (RULES * SESSIONS))
ALARMS: Final = SESSIONS * RULES * SOUNDS
KILLS: Final = length("ALARM_KILLS", 2)
#: Chunks of half a second: one second is loud, three are silent.
PATTERN: Final = (*[b"\xff\x3f\x01\xc0" * 4000] * 2, *[bytes(16_000)] * 6)
#: After so long each node knows a new rule.
KNOWN_SECONDS: Final = 5.0
#: Seconds before each attempt: the standard's schedule, a hundredth of it, or short for a short test.
RETRIES: Final = "0,0.05,3,18,72,180,360,504,720,864" if ALARMS > 1000 else ",".join(["0", *["0.1"] * 19])

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300 + ALARMS // 10)]


@pytest.fixture
def settings() -> dict[str, str]:
    return {"delivery_networks": "127.0.0.1", "delivery_retries": RETRIES}


def prepare(victim: ServiceProcess, receiver: Receiver) -> None:
    """Add the receiver, and rules for whatever is loud."""
    with Client(victim.url, KEY) as client:
        added = client.add_destination(Destination(name="receiver", kind="webhook", url=receiver.url))
        assert added.secret is not None
        receiver.secret = added.secret
        for number in range(RULES):
            to = (added.destination.id,)
            client.add_alarm_rule(
                AlarmRule(name=f"{number}", when="loud", level=-20, gap=0, cooldown=0, destinations=to)
            )


async def stream(sender: Sender, name: str) -> str:
    body = {"type": "stream", "content_type": "audio/x-raw; rate=16000; format=s16le", "file_name": name}
    answer = await sender.ask("POST", "/audio_sessions/", json=body, headers={"X-Api-Key": KEY})
    session = str(answer.json()["session_id"])
    for number in range(SOUNDS * len(PATTERN)):
        data = base64.b64encode(PATTERN[number % len(PATTERN)]).decode()
        path, key = f"/audio_sessions/{session}/chunks/{number}", {"Idempotency-Key": f"{name}-{number}"}
        answer = await sender.ask("PUT", path, json={"data": data}, headers=key)
        assert answer.status_code == 200, answer.text
        sender.acknowledged += 1
    return session


@ON_EMBEDDED
async def test_each_alarm_is_delivered_across_kills(victim: ServiceProcess) -> None:
    print(f"seed {SEED}, {ALARMS} alarms, {KILLS} kills of the service and of the receiver")
    chance = random.Random(SEED)
    receiver = Receiver(SEED)
    async with receiver, Sender(victim) as sender:
        await asyncio.to_thread(prepare, victim, receiver)
        await asyncio.sleep(KNOWN_SECONDS)

        async def work() -> list[str]:
            sessions = await asyncio.gather(*(stream(sender, f"source {number}") for number in range(SESSIONS)))
            await until(lambda: len(receiver.taken) >= ALARMS, 200 + ALARMS // 10)
            return sessions

        async def killed() -> None:
            for number in range(KILLS):
                point = ALARMS * (number + 0.5) / (KILLS + 1)
                await until(lambda point=point: len(receiver.taken) >= point, 200 + ALARMS // 10)  # type: ignore[misc]
                receiver.kill()
                await asyncio.sleep(chance.uniform(0.1, 1.0))
                await receiver.start()

        working, killing = asyncio.create_task(work()), asyncio.create_task(killed())
        await kill_on_the_way(victim, working, lambda: len(receiver.taken), ALARMS, KILLS, chance)
        sessions = await working
        await killing
        await asyncio.to_thread(victim.wait_ready)
        listed = await asyncio.to_thread(delivered, victim)
    assert sorted(listed) == [(session, number) for session in sorted(sessions) for number in range(RULES * SOUNDS)]
    assert sorted(listed.values()) == sorted(receiver.bodies), "each has an id, and all were received"
    shown = {keys.shown(session): session for session in sessions}
    assert {(shown[one["session"]], one["sequence"]): one["id"] for one in receiver.alarms} == listed
    twice = sum(count > 1 for count in receiver.taken.values())
    print(f"{twice} alarms came twice, {sum(receiver.failed.values())} attempts failed")
    for _, found in groupby(sorted((one["source"], one["rule"]["name"], one["begins_at"]) for one in receiver.alarms)):
        assert len(list(found)) == 1, "no sound makes two alarms of a rule"


def delivered(victim: ServiceProcess) -> dict[tuple[str, int], str]:
    """Wait until all deliveries have ended; return the ids of the alarms, each of which was delivered."""
    while True:
        with Client(victim.url, KEY) as client:
            alarms = list(client.alarms())
        states = {delivery.state for one in alarms for delivery in one.deliveries}
        if "pending" not in states:
            assert states == {"delivered"}
            found = {(one.session_id, one.sequence): one.id for one in alarms}
            assert len(found) == len(alarms)
            return found
