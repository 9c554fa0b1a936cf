"""Attacks without a client library: `python -m tests.attacks.attackers NAME HOST PORT SESSION`, until killed.

Each attack keeps a number of connections open and replaces closed ones. It prints a line when it begins, and at the end
the answers it got.
"""

import asyncio
import contextlib
import json
import resource
import secrets
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable

Parts = AsyncIterator[bytes]

#: Counts of first answers by status, "closed" for none, and of refused connections.
answers: Counter[str] = Counter()


def head(line: str, *headers: str) -> bytes:
    return "\r\n".join((f"{line} HTTP/1.1", "Host: x", *headers, "", "")).encode()


async def stalled_chunks_of_a_session(session: str) -> Parts:
    """Nearly all of a chunk of 1 MB, for an existing session."""
    yield head(f"PUT /audio_sessions/{session}/chunks/0", "Content-Length: 1400000")
    yield b'{"data":"' + b"A" * 1_300_000
    await asyncio.Event().wait()


async def idle(session: str) -> Parts:
    """A connection that sends nothing."""
    await asyncio.Event().wait()
    yield b""


async def unread_pages(session: str) -> Parts:
    while True:
        yield head("GET /tags/official") * 8
        await asyncio.sleep(0.01)


async def random_keys(session: str) -> Parts:
    """Random keys, in our form and others, as fast as they are answered."""
    while True:
        for key in (secrets.token_hex(20), f"esp_{secrets.token_hex(18)}"):
            yield head("POST /audio_sessions/", f"X-Api-Key: {key}", "Content-Length: 2") + b"{}"
        await asyncio.sleep(0.005)


async def refused_bodies(session: str) -> Parts:
    """Gigabytes after a refusal, as fast as they are discarded."""
    yield head("POST /api/v1/analyze_file", f"X-Api-Key: {secrets.token_hex(20)}", "Content-Length: 4000000000")
    block = bytes(1 << 18)
    while True:
        yield block


async def deaf_listeners(session: str) -> Parts:
    """Listeners that read nothing, and send more requests on the same connection."""
    while True:
        yield head(f"GET /audio_sessions/{session}/live?from=0")
        await asyncio.sleep(0.1)


def upgrade(session: str, query: str = "") -> bytes:
    return head(
        f"GET /audio_sessions/{session}/socket{query}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Protocol: earshot.v1",
    )


def frame(first: int, size: int) -> bytes:
    """Return the head of a frame with a mask of zeros."""
    return bytes((first, 0xFF)) + size.to_bytes(8, "big") + bytes(4)


async def upgrades(session: str) -> Parts:
    """Sockets of unknown sessions: each is upgraded, gets an error, and is closed."""
    yield upgrade(secrets.token_hex(12))


async def stalled_messages(session: str) -> Parts:
    """Nearly all of a message of a mebibyte; a listening socket disturbs no sender."""
    yield upgrade(session, "?mode=listen")
    await asyncio.sleep(0.2)
    yield frame(0x82, 1 << 20) + bytes((1 << 20) - 1)
    await asyncio.Event().wait()


async def endless_fragments(session: str) -> Parts:
    """One endless message in frames of one byte, then of none."""
    yield upgrade(session, "?mode=listen")
    await asyncio.sleep(0.2)
    yield b"\x02\x81\0\0\0\0x"
    while True:
        yield b"\x00\x81\0\0\0\0x" * 4096
        yield b"\x00\x80\0\0\0\0" * 4096


#: Attackers that read nothing after the first piece of an answer.
DEAF = frozenset({unread_pages, deaf_listeners})

#: Each attack, its number of connections, and the first answer that some of them get.
ATTACKS: dict[str, tuple[Callable[[str], Parts], int, str]] = {
    attack.__name__: (attack, connections, status)
    for attack, connections, status in (
        (stalled_chunks_of_a_session, 300, "503"),
        (idle, 10_000, "closed"),
        (unread_pages, 64, "200"),
        (random_keys, 16, "401"),
        (refused_bodies, 64, "401"),
        (deaf_listeners, 100, "200"),
        (upgrades, 64, "101"),
        (stalled_messages, 300, "101"),
        (endless_fragments, 16, "101"),
    )
}


async def once(attack: Callable[[str], Parts], host: str, port: int, session: str) -> None:
    """Attack over one connection until it is closed."""
    reader, writer = await asyncio.open_connection(host, port, limit=4096)
    deaf = attack in DEAF
    heard = asyncio.create_task(_hear(reader, deaf))
    said = asyncio.create_task(_say(writer, attack(session)))
    try:
        await asyncio.wait({heard, said}, return_when=asyncio.FIRST_COMPLETED)
        if not deaf:
            async with asyncio.timeout(5):
                await heard
    except TimeoutError:
        pass
    finally:
        heard.cancel()
        said.cancel()
        await asyncio.gather(heard, said, return_exceptions=True)
        writer.transport.abort()


async def _hear(reader: asyncio.StreamReader, deaf: bool) -> None:
    """Count the first answer; read on until the connection is closed, unless the attacker is deaf."""
    first = True
    with contextlib.suppress(OSError):
        while data := await reader.read(4096):
            if first:
                answers[data.split(maxsplit=2)[1].decode("latin-1")] += 1
                first = False
            if deaf:
                await asyncio.Event().wait()
    if first:
        answers["closed"] += 1


async def _say(writer: asyncio.StreamWriter, parts: Parts) -> None:
    with contextlib.suppress(OSError, RuntimeError):
        async for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)  # Writing without waiting must also yield to the loop.


async def keep_going(name: str, host: str, port: int, session: str) -> None:
    """Attack with all connections at once until the process is terminated."""
    attack, connections, _ = ATTACKS[name]
    opening = asyncio.Semaphore(64)

    async def lane() -> None:
        while True:
            try:
                async with opening:
                    await asyncio.sleep(0.002)
                await once(attack, host, port, session)
            except OSError:
                answers["not taken"] += 1
                await asyncio.sleep(0.1)

    ending = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.set)
    print("begun", flush=True)
    lanes = [asyncio.create_task(lane()) for _ in range(connections)]
    await ending.wait()
    for one in lanes:
        one.cancel()
    await asyncio.gather(*lanes, return_exceptions=True)
    print(json.dumps(answers))


if __name__ == "__main__":
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    name, host, port, session = sys.argv[1:]
    asyncio.run(keep_going(name, host, int(port), session))
