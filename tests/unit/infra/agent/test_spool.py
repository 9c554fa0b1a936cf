"""What is kept until the service has it: in memory, on disk, across agents, and beyond its bound."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from infra.agent import flac
from infra.agent.flac import Block, Note
from infra.agent.spool import MEMORY, SEGMENT, Spool, State, settle


def pcm(number: int) -> bytes:
    return number.to_bytes(2, "little") * 8000


def filled(directory: Path, count: int, first: int = 0) -> Spool:
    spool = Spool(directory, "barn")
    for number in range(first, first + count):
        spool.push(number * 500, pcm(number))
    return spool


async def sent(spool: Spool, most: int = 10_000) -> list[int]:
    """Send blocks, and return their numbers."""
    numbers = list[int]()
    while len(numbers) < most and (block := await spool.next()) is not None:
        assert block.data == pcm(block.at_ms // 500)
        numbers.append(block.at_ms // 500)
        spool.advance()
    return numbers


def files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.flac"))


def test_files_keep_samples_times_and_notes(tmp_path: Path) -> None:
    blocks = [Block(5, pcm(7), (Note("source.back", 4),)), Block(1005, pcm(9)[:100], ())]
    flac.write(tmp_path / "a.flac", blocks)
    found = flac.read(tmp_path / "a.flac")
    assert [(one.at_ms, one.data, one.notes) for one in found] == [(one.at_ms, one.data, one.notes) for one in blocks]
    assert all(one.late for one in found)


def test_nothing_is_written_while_all_is_well(tmp_path: Path) -> None:
    async def scenario() -> None:
        spool = Spool(tmp_path, "barn")
        spool.joined("s", 0, "d")
        for number in range(100):
            spool.push(number * 500, pcm(number))
            assert await sent(spool) == [number]
            spool.acknowledged(number + 1)
            await spool.settle()
        assert spool.first == spool.end == 100
        assert not files(tmp_path)

    asyncio.run(scenario())


def test_what_waits_goes_to_disk_and_comes_back_in_order(tmp_path: Path) -> None:
    async def scenario() -> None:
        spool = filled(tmp_path, MEMORY + 35)
        await spool.settle()
        assert len(files(tmp_path)) == 5
        spool.joined("s", 0, "d")
        assert await sent(spool, 25) == list(range(25))
        spool.acknowledged(25)
        assert len(files(tmp_path)) == 3
        assert await sent(spool) == list(range(25, 55))
        spool.acknowledged(55)
        assert not files(tmp_path)
        assert not spool.late
        await asyncio.wait_for(spool.drained(), 1)

    asyncio.run(scenario())


def test_blocks_acknowledged_while_they_are_written_leave_no_file(tmp_path: Path) -> None:
    async def scenario() -> None:
        spool = filled(tmp_path, MEMORY)
        spool.joined("s", 0, "d")
        await sent(spool)
        writing = asyncio.create_task(spool.settle())
        await asyncio.sleep(0)
        spool.acknowledged(MEMORY)
        await writing
        assert not files(tmp_path)
        assert spool.first == spool.end == MEMORY

    asyncio.run(scenario())


@pytest.mark.parametrize("stored", [0, 3, SEGMENT, 17, 30])
def test_next_agent_sends_what_the_service_lacks(tmp_path: Path, stored: int) -> None:
    async def scenario() -> None:
        spool = filled(tmp_path, 30)
        spool.joined("s", 5, "d")  # The session has chunks of another agent already.
        await sent(spool)
        await spool.settle(every=True)

        spool = Spool(tmp_path, "barn")
        assert spool.state == State("s", -5, "d")
        for number in range(30, 33):
            spool.push(number * 500, pcm(number))
        spool.joined("s", 5 + stored, "d")
        assert await sent(spool) == list(range(stored, 33))
        spool.acknowledged(5 + 33)
        assert spool.first == spool.end
        assert not files(tmp_path)

    asyncio.run(scenario())


def test_agents_without_a_service_keep_what_they_heard(tmp_path: Path) -> None:
    async def scenario() -> None:
        spool = filled(tmp_path, 30)
        spool.joined("s", 0, "d")
        await sent(spool)
        spool.acknowledged(30)
        # The next agent finds nothing, and its ordinals begin anew; the one after it goes on with them.
        await filled(tmp_path, 20, 30).settle(every=True)
        spool = Spool(tmp_path, "barn")
        spool.joined("s", 30, "d")
        assert await sent(spool) == list(range(30, 50))

    asyncio.run(scenario())


def test_agent_killed_between_two_sessions_sends_nothing_twice(tmp_path: Path) -> None:
    async def scenario() -> None:
        spool = filled(tmp_path, SEGMENT)
        spool.joined("s", 0, "d")
        await spool.settle(every=True)
        await sent(spool, 6)
        spool.acknowledged(6)
        spool.leave("e")
        spool = Spool(tmp_path, "barn")
        spool.joined("t", 0, "e")
        assert await sent(spool) == list(range(6, SEGMENT))

    asyncio.run(scenario())


def test_agent_killed_before_it_removed_a_file_does_not_drop_fresh_blocks(tmp_path: Path) -> None:
    async def scenario() -> None:
        spool = filled(tmp_path, SEGMENT)
        spool.joined("s", 0, "d")
        await spool.settle(every=True)
        await sent(spool)
        # It sent 20 more from memory, and was killed when all 30 were stored.
        spool = filled(tmp_path, 5, SEGMENT)
        spool.joined("s", 30, "d")
        assert await sent(spool) == list(range(SEGMENT, SEGMENT + 5))
        spool.acknowledged(35)
        assert spool.first == spool.end

    asyncio.run(scenario())


@pytest.mark.parametrize("stored", [3, 13])
def test_oldest_go_first_and_are_reported(tmp_path: Path, stored: int) -> None:
    async def scenario() -> None:
        barn, shed = filled(tmp_path / "barn", 40), filled(tmp_path / "shed", 40, 10)
        barn.joined("s", 0, "d")
        assert await sent(barn, 15) == list(range(15))
        await settle([barn, shed], 10**9)
        await settle([barn, shed], barn.size + shed.size - 1)
        assert barn.broken
        # The service had stored some of the 15 that were on their way.
        barn.joined("s", stored, "d")
        left = list(range(max(10, stored), 40))
        assert await sent(barn) == left
        barn.acknowledged(stored + len(left))
        assert barn.first == barn.end
        assert (len(files(tmp_path / "barn")), len(files(tmp_path / "shed"))) == (0, 4)

    with capture_logs() as lines:
        asyncio.run(scenario())
    (lost,) = [line for line in lines if line["event"] == "audio lost"]
    assert (lost["source"], lost["seconds"], lost["captured"]) == ("barn", 5.0, "1970-01-01T00:00:00.000+00:00")


def test_disk_that_takes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, blocks: object) -> int:
        raise OSError(28, "No space left on device")

    async def scenario() -> None:
        monkeypatch.setattr(flac, "write", full)
        spool = Spool(tmp_path, "barn")
        for number in range(1000):
            spool.push(number * 500, pcm(number))
            await spool.settle()
        spool.joined("s", 0, "d")
        numbers = await sent(spool)
        assert 200 < len(numbers) < 260
        assert numbers == list(range(1000 - len(numbers), 1000))

    asyncio.run(scenario())


def test_damaged_file_is_reported_and_the_rest_goes_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        spool = filled(tmp_path, 40)
        await spool.settle()
        files(tmp_path)[1].write_bytes(b"fLaC" + bytes(1000))
        files(tmp_path)[2].unlink()
        spool = Spool(tmp_path, "barn")
        spool.joined("s", 0, "d")
        numbers = []
        while (block := await spool.next()) is not None:
            numbers.append(block.at_ms // 500 if len(block.data) > 2 else None)
            spool.advance()
        assert numbers == [*range(10), *[None] * 10, *range(30, 40)]

    with capture_logs() as lines:
        asyncio.run(scenario())
    assert [line["reason"] for line in lines] == ["it is damaged"]


def test_file_that_ends_early_or_has_impossible_times_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "a.flac"
    flac.write(path, [Block(1_700_000_000_000, pcm(7))])
    whole = path.read_bytes()
    for damaged in (*(whole[:size] for size in range(0, len(whole), 11)), whole.replace(b"[[170", b"[[970000")):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="damaged"):
            flac.read(path)


def test_file_that_was_not_written_takes_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(flac, "sync", full)
    with pytest.raises(OSError, match="No space"):
        flac.write(tmp_path / "a.flac", [Block(0, pcm(7))])
    assert not list(tmp_path.iterdir())


def test_state_that_could_not_be_saved_is_saved_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    async def scenario() -> None:
        spool = filled(tmp_path, 3)
        with monkeypatch.context() as patched:
            patched.setattr("infra.agent.spool.replace_file", full)
            spool.joined("s", 0, "d")
            await spool.settle()
        await spool.settle(every=True)
        assert Spool(tmp_path, "barn").state == State("s", 0, "d")

    with capture_logs() as lines:
        asyncio.run(scenario())
    assert [line["event"] for line in lines] == ["state not saved"]


def test_folder_that_somebody_removed_is_made_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        spool = filled(tmp_path / "barn", MEMORY)
        (tmp_path / "barn").rmdir()
        await spool.settle()
        assert len(files(tmp_path / "barn")) == 2

    asyncio.run(scenario())


def test_missing_file_closes_up(tmp_path: Path) -> None:
    async def scenario() -> None:
        await filled(tmp_path, 40).settle(every=True)
        files(tmp_path)[1].unlink()
        spool = Spool(tmp_path, "barn")
        assert spool.state.base is None
        spool.joined("s", 0, "d")
        assert await sent(spool) == [*range(10), *range(20, 40)]
        spool.acknowledged(30)
        assert not files(tmp_path)

    asyncio.run(scenario())


def test_seam_and_notes(tmp_path: Path) -> None:
    async def scenario() -> None:
        spool = filled(tmp_path, 4)
        spool.note(Note("source.lost", 2000, "gone"))
        spool.joined("s", 0, "d")
        assert await sent(spool, 3) == [0, 1, 2]
        spool.noted(Note("source.back", 7))
        dues = [spool.due, await sent(spool) and spool.due]
        assert dues == [None, Note("source.lost", 2000, "gone")]
        spool.noted(Note("source.lost", 2000, "gone"))
        spool.acknowledged(4)
        spool.note(Note("source.back", 2500))
        spool.push(2500, pcm(5))
        spool.leave()
        spool.put_back([Block(1000, pcm(2)), Block(1500, pcm(3))])
        spool.joined("t", 0, "e")
        assert await sent(spool) == [2, 3, 5]
        assert spool.due is None
        assert spool.state == State("t", 2, "e")

    asyncio.run(scenario())
