"""The load process: `python -m benchmarks.load` reads a plan from standard input, runs it, prints a `Sample`.

It reads the CPU time of the loaded processes before the first measured request and again when they are idle after the
last one, so that work done after the answers counts too.
"""

import asyncio
import gc
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

import msgspec
import uvloop

from benchmarks import audio, procfs
from benchmarks.client import LoadClient, LoadError
from benchmarks.measures import Sample
from benchmarks.plans import AnyPlan, IdlePlan, LivePlan, PacedPlan, ReadPlan, Target, TurnsPlan, UploadPlan
from benchmarks.processes import REFUSED
from benchmarks.sockets import SocketClient
from benchmarks.wire import HttpConnection, request
from topics.keys import partition_of

#: Seconds for the loaded processes to become idle.
REST_SECONDS: Final = 0.3

Work = Callable[[], Awaitable[object]]


async def measure_load(target: Target, work: Sequence[Work], done: int) -> Sample:
    """Do all of `work` at once; return the sample, with `done` as its count."""
    gc.collect()
    gc.disable()
    cpu, broker = procfs.cpu_seconds(target.pids), procfs.cpu_seconds(target.brokers)
    own, began = time.process_time(), time.perf_counter()
    await asyncio.gather(*(one() for one in work))
    seconds, load = time.perf_counter() - began, time.process_time() - own
    await asyncio.sleep(REST_SECONDS)
    spent = procfs.cpu_seconds(target.pids) - cpu
    return Sample(done, seconds, spent, procfs.cpu_seconds(target.brokers) - broker, load=load)


async def clients(target: Target, count: int, kind: str = "", keys: Sequence[str] = ()) -> list[LoadClient]:
    """Return connected clients, each with a new session if `kind` is given, of the projects of `keys` in turn."""
    targets = [msgspec.structs.replace(target, key=key) for key in keys or (target.key,)]
    connected = [await LoadClient.connect(targets[number % len(targets)]) for number in range(count)]
    if kind:
        await asyncio.gather(*(client.create(kind) for client in connected))
    return connected


async def of_partition(target: Target, count: int, kind: str, partition: int) -> list[LoadClient]:
    """Return clients with a new session of this one of two partitions.

    A session has a partition of the lane that accepted its connection.
    """
    found: list[LoadClient] = []
    while len(found) < count:
        (client,) = await clients(target, 1, kind)
        if partition_of(client.session, 2) == partition:
            found.append(client)
        else:
            client.connection.close()
    return found


async def pairs_of_lanes(target: Target, count: int, kind: str) -> list[tuple[LoadClient, LoadClient]]:
    """Return pairs of clients, each with a session of its own one of two lanes."""
    return list(zip(*[await of_partition(target, count // 2, kind, partition) for partition in range(2)], strict=True))


async def streams(plan: LivePlan | PacedPlan) -> Sequence[LoadClient | SocketClient]:
    """Return the senders of a plan's streams."""
    if isinstance(plan, LivePlan) and plan.away:
        pairs = await pairs_of_lanes(plan.target, plan.streams, "stream")
        for one, other in pairs:
            one.session, other.session = other.session, one.session
        connected = [client for pair in pairs for client in pair]
    elif isinstance(plan, PacedPlan) and plan.partition is not None:
        connected = await of_partition(plan.target, plan.streams, "stream", plan.partition)
    else:
        connected = await clients(plan.target, plan.streams, "stream", plan.keys)
    return [SocketClient.join(client) for client in connected] if plan.sockets else connected


async def run_uploads(plan: UploadPlan) -> Sample:
    """Upload chunks to file sessions as fast as they are acknowledged, and count chunks."""

    async def one(client: LoadClient, requests: Sequence[tuple[bytes, ...]]) -> None:
        for parts in requests:
            await client.ask(*parts)

    connected = await clients(plan.target, plan.connections, "file")
    if plan.via is not None:
        for client in connected:
            client.connection.close()
            client.connection = await HttpConnection.open(plan.via)
    work = [partial(one, client, client.uploads(audio.chunks(n), plan.chunks)) for n, client in enumerate(connected)]
    return await measure_load(plan.target, work, plan.connections * plan.chunks)


async def run_turns(plan: TurnsPlan) -> Sample:
    """Upload chunks to two file sessions in turn over each connection, and count chunks."""

    async def one(client: LoadClient, requests: Iterable[tuple[tuple[bytes, ...], ...]]) -> None:
        for parts in chain.from_iterable(requests):
            await client.ask(*parts)

    pairs = await pairs_of_lanes(plan.target, 2 * plan.connections, "file")
    if not plan.away:
        by_lane = [client for of_lane in zip(*pairs, strict=True) for client in of_lane]
        pairs = list(zip(by_lane[::2], by_lane[1::2], strict=True))
    work = [
        partial(one, pair[0], zip(*(client.uploads(audio.chunks(n), plan.chunks) for client in pair), strict=True))
        for n, pair in enumerate(pairs)
    ]
    return await measure_load(plan.target, work, 2 * plan.connections * plan.chunks)


async def run_live(plan: LivePlan) -> Sample:
    """Upload chunks to stream sessions at full speed, read windows in bursts, and count windows."""
    last = plan.chunks - 1

    async def one(client: LoadClient | SocketClient, requests: Sequence[tuple[bytes, ...]]) -> None:
        read = 0
        for number, parts in enumerate(requests):
            await client.ask(*parts)
            last_window = last if number == last else number - plan.burst
            while read < last_window and (number == last or number % plan.burst == 0):
                read += await client.windows(read)

    connected = await streams(plan)
    work = [partial(one, client, client.uploads(audio.chunks(n), plan.chunks)) for n, client in enumerate(connected)]
    return await measure_load(plan.target, work, plan.streams * last)


async def run_reads(plan: ReadPlan) -> Sample:
    """Read all paths over each connection, starting at different paths, and count reads."""
    key = f"X-Api-Key: {plan.target.key}\r\n" if plan.keyed else ""
    heads = [request("GET", path, headers=key) for path in plan.paths]
    latencies: list[float] = []

    async def one(client: LoadClient, first: int) -> None:
        for step in range(len(heads) * plan.rounds):
            began = time.perf_counter()
            await client.ask(heads[(first + step) % len(heads)])
            latencies.append(1000 * (time.perf_counter() - began))

    connected = await clients(plan.target, plan.connections)
    apart = max(1, len(heads) // plan.connections)
    work = [partial(one, client, number * apart) for number, client in enumerate(connected)]
    sample = await measure_load(plan.target, work, plan.connections * len(heads) * plan.rounds)
    return msgspec.structs.replace(sample, latencies=tuple(latencies))


async def run_paced(plan: PacedPlan) -> Sample:
    """Stream in real time, with starts spread evenly over one chunk's time, and count windows read."""
    chunks, warm = (int(seconds / audio.SECONDS) for seconds in (plan.seconds, plan.warm))
    latencies: list[float] = []

    async def write(
        client: LoadClient | SocketClient, requests: Sequence[tuple[bytes, ...]], begin: float, since: list[float]
    ) -> None:
        for number, parts in enumerate(requests):
            # Follow the clock, not the last answer: a slow answer must not slow the stream down.
            await asyncio.sleep(max(0.0, begin + number * audio.SECONDS - time.perf_counter()))
            if plan.from_sent:
                since.append(time.perf_counter())
            await client.ask(*parts)
            if not plan.from_sent:
                since.append(time.perf_counter())

    async def follow(client: LoadClient | SocketClient, since: list[float]) -> None:
        window, token = 0, ""
        while window < chunks - 1:
            count, token = await client.follow(token)
            now = time.perf_counter()
            # Window i is complete with chunk i + 1; its answer may overtake the acknowledgement of that chunk.
            first = max(window, warm)
            latencies.extend(_latency_ms(now, since, number + 1) for number in range(first, window + count))
            window += count

    writers = await streams(plan)
    readers = writers if plan.sockets else await clients(plan.target, plan.streams)
    sound = audio.recorded(Path(plan.recording)) if plan.recording else audio.chunks(0)
    requests = [client.uploads(sound, chunks) for client in writers]
    begin = time.perf_counter() + 0.2
    work: list[Work] = []
    for number, (writer, reader) in enumerate(zip(writers, readers, strict=True)):
        reader.session = writer.session
        since: list[float] = []
        at = begin + number * audio.SECONDS / plan.streams
        work += [partial(write, writer, requests[number], at, since), partial(follow, reader, since)]
    sample = await measure_load(plan.target, work, plan.streams * (chunks - 1))
    return msgspec.structs.replace(sample, latencies=tuple(latencies))


def _latency_ms(now: float, since: list[float], number: int) -> float:
    return 1000 * (now - since[number]) if number < len(since) else 0.0


async def run_idle(plan: IdlePlan) -> Sample:
    """Create stream sessions, upload one short chunk to each, and count sessions."""
    sound = [audio.chunk(0, 0, 1024)]

    async def one(client: LoadClient, sessions: int) -> None:
        for _ in range(sessions):
            await client.create("stream")
            await client.ask(*client.uploads(sound, 1)[0])

    connected = await clients(plan.target, plan.connections)
    each = plan.sessions // plan.connections
    work = [partial(one, client, each) for client in connected]
    return await measure_load(plan.target, work, each * plan.connections)


async def run_plan(plan: AnyPlan) -> Sample:
    match plan:
        case LivePlan():
            return await run_live(plan)
        case UploadPlan():
            return await run_uploads(plan)
        case TurnsPlan():
            return await run_turns(plan)
        case ReadPlan():
            return await run_reads(plan)
        case PacedPlan():
            return await run_paced(plan)
        case IdlePlan():
            return await run_idle(plan)


def main() -> None:
    plan = msgspec.json.decode(sys.stdin.buffer.read(), type=AnyPlan)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            sample = runner.run(run_plan(plan))
        except LoadError as error:
            print(error, file=sys.stderr)
            sys.exit(REFUSED)
    sys.stdout.buffer.write(msgspec.json.encode(sample))


if __name__ == "__main__":
    main()
