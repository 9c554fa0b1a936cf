"""The process from which lanes are forked: what lanes get from it and do not share, and what its end changes."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import psutil
import pytest

from infra.db.schema import REVISION
from infra.service import lane_template
from infra.service.lane_template import LaneTemplate, RunningLane
from infra.service.lanes import Orders
from infra.settings import Lane
from topics.errors import ServiceError

pytestmark = pytest.mark.slow

#: Tells what a lane has, and ends with the status that the supervisor sends. SQLAlchemy would be half of its imports.
PROGRAM = (
    f"""
import sys, types
sys.modules["infra.db.schema"] = types.SimpleNamespace(REVISION={REVISION!r})
"""
    + """
import json, os, random, socket, sys, uuid
from infra.service.lane_template import wait_for_orders
def files():
    return {number: os.readlink(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")
        if os.path.lexists(f"/proc/self/fd/{number}")}
orders, supervisor, zygote = wait_for_orders(socket.socket(fileno=int(sys.argv[1])))
told = {"lane": orders.lane.number, "parent": os.getppid(), "name": open("/proc/self/comm").read().strip(),
    "random": [random.random(), uuid.uuid4().hex], "zygote": zygote.recv(9).decode(), "files": files(),
    "listener": os.readlink(f"/proc/self/fd/{orders.private[0]}")}
supervisor.sendall(json.dumps(told).encode() + b"\\n")
sys.exit(supervisor.recv(1)[0])
"""
)


def command(program: str) -> tuple[str, ...]:
    return sys.executable, "-c", program


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes import little, and tell what they have."""
    monkeypatch.setattr(lane_template, "COMMAND", command(PROGRAM))


@pytest.fixture
def sockets() -> Iterator[list[socket.socket]]:
    """Yield what lanes get, the private listener first."""
    with ExitStack() as stack:
        yield [stack.enter_context(socket.socket()) for _ in range(8)]


def orders(sockets: list[socket.socket], number: int) -> Orders:
    numbers = [one.fileno() for one in sockets]
    placement = (frozenset({0}), frozenset({1}))
    return Orders(
        Lane(number, 2, 1), placement, ("", ""), 0, None, numbers[1], (numbers[0],), (numbers[2],), numbers[3],
        (numbers[4], numbers[5]), numbers[6], numbers[7],
    )  # fmt: skip


async def forked(
    template: LaneTemplate, sockets: list[socket.socket], number: int = 0
) -> tuple[RunningLane, dict[str, Any]]:
    """Return a new lane, and what it tells."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(b"zygote %d" % number)
        lane = await template.fork(orders(sockets, number), theirs)
    return lane, json.loads(await lane.reader.readline())


def template_process() -> psutil.Process:
    (process,) = [one for one in psutil.Process().children() if one.name() == "lane template"]
    return process


async def end(lane: RunningLane, status: int = 0) -> int:
    lane.writer.write(bytes([status]))
    found = await lane.wait()
    lane.writer.close()
    return found


async def test_lanes_are_children_that_share_no_random_numbers_and_no_files(sockets: list[socket.socket]) -> None:
    template = LaneTemplate()
    lanes = [await forked(template, sockets, number) for number in range(2)]
    (_, first), (_, second) = lanes
    assert [(told["lane"], told["name"], told["zygote"], told["parent"]) for _, told in lanes] == [
        (number, f"lane {number}", f"zygote {number}", os.getpid()) for number in range(2)
    ]
    assert not set(first["random"]) & set(second["random"])
    given = {os.readlink(f"/proc/self/fd/{one.fileno()}") for one in sockets}
    own = [set(told["files"].values()) - given for _, told in lanes]
    assert first["listener"] == os.readlink(f"/proc/self/fd/{sockets[0].fileno()}")
    # The standard streams, which need not be three files, and nothing but its connections to supervisor and zygote.
    assert {name for name in own[0] & own[1] if name.startswith(("socket:", "anon_inode:"))} == set()
    assert [len(told["files"]) for _, told in lanes] == [3 + 2 + len(sockets)] * 2
    process = template_process()
    assert len(os.listdir(f"/proc/{process.pid}/fd")) == 4
    assert [await end(lane, 3 + number) for number, (lane, _) in enumerate(lanes)] == [3, 4]
    template.stop()
    assert not process.is_running()


async def test_kill_of_a_lane_is_seen(sockets: list[socket.socket]) -> None:
    template = LaneTemplate()
    lane, _ = await forked(template, sockets)
    lane.send_signal(signal.SIGKILL)
    assert await lane.wait() == -signal.SIGKILL
    lane.send_signal(signal.SIGKILL)
    lane.writer.close()
    template.stop()


async def test_lanes_outlive_the_process_that_forked_them(sockets: list[socket.socket]) -> None:
    template = LaneTemplate()
    before, _ = await forked(template, sockets)
    template_process().kill()
    template_process().wait(60)
    after, told = await forked(template, sockets, 1)
    assert told["parent"] == os.getpid()
    assert await end(after, 5) == 5
    assert await end(before, 6) == 6
    template.stop()


async def test_one_that_does_not_answer_is_replaced(
    sockets: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    template = LaneTemplate()
    await template.start()
    template_process().suspend()
    with monkeypatch.context() as patch:
        patch.setattr(lane_template, "FORK_SECONDS", 0.1)
        with pytest.raises(TimeoutError):
            await forked(template, sockets)
    lane, _ = await forked(template, sockets)
    assert await end(lane) == 0
    template.stop()


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("", "does not start"),
        ("import socket, sys; socket.socket(fileno=int(sys.argv[1])).send(b'lanes 0')", "other formats are installed"),
        (f"import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()\n{PROGRAM}", "start"),
    ],
    ids=["nothing", "another version", "threads"],
)
async def test_new_code_that_cannot_take_orders_replaces_nothing(
    sockets: list[socket.socket], program: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = LaneTemplate()
    await template.start()
    monkeypatch.setattr(lane_template, "COMMAND", command(program))
    with pytest.raises(ServiceError, match=reason):
        await template.replace()
    lane, _ = await forked(template, sockets)
    assert await end(lane) == 0
    monkeypatch.setattr(lane_template, "COMMAND", command(f"{PROGRAM.replace('[0]', '[0] + 1')}"))
    await template.replace()
    lane, _ = await forked(template, sockets)
    assert await end(lane) == 1
    template.stop()


def test_imports_of_a_lane_start_no_thread_and_seed_nothing_that_lanes_would_share() -> None:
    """Only `random` itself is seeded again in a forked process; aiohttp's masks of a client's sockets may be equal."""
    program = """
import gc, os, random, socket, sys
from infra.cli import lane
from infra.service import lane_template
def look(control):
    gc.unfreeze()
    seeded = [one for one in gc.get_objects() if type(one) is random.Random and one is not random._inst]
    known = [one for one in seeded for user in gc.get_referrers(one) if isinstance(user, dict) and "notakeover" in user]
    print(len(os.listdir("/proc/self/task")), len(seeded) - len(known), "numpy.random" in sys.modules)
    sys.exit()
lane_template.wait_for_orders = look
lane.main(socket.socket().detach())
"""
    environment = os.environ | lane_template.ENVIRONMENT
    ran = subprocess.run(command(program), env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout == "1 0 False\n"
