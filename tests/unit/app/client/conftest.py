"""A stub of the service that hears a dog, then a dog and speech, then nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.app.client.jobs_stub import JobStub
from tests.unit.app.client.speakers_stub import SpeakerStub
from tests.unit.app.client.stub import WAV, Stub, serving

HEARD = [{}, {"Dog_bark": 0.6}, {"Dog_bark": 0.9, "Speech": 0.7}, {}, {"Speech": 0.8}]


@pytest.fixture
def stub() -> Iterator[Stub]:
    with serving(Stub(HEARD)) as stub:
        yield stub


@pytest.fixture(scope="session")
def _jobs() -> Iterator[JobStub]:
    with serving(JobStub()) as stub:
        yield stub


@pytest.fixture
def jobs(_jobs: JobStub) -> JobStub:
    _jobs.reset()
    return _jobs


@pytest.fixture(scope="session")
def _speakers() -> Iterator[SpeakerStub]:
    with serving(SpeakerStub()) as stub:
        yield stub


@pytest.fixture
def speakers(_speakers: SpeakerStub) -> SpeakerStub:
    _speakers.reset()
    return _speakers


@pytest.fixture
def wav(tmp_path: Path) -> Path:
    """A recording whose name is not ASCII."""
    path = tmp_path / "hörbar.wav"
    path.write_bytes(WAV)
    return path
