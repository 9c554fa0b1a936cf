"""Audio that always kills the worker that analyses it fails, and the service lives.

An external kill of a process is not the job's fault.
"""

import asyncio
import base64
import platform
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from infra.models.registry import Registry
from streams.audio.wav import wav_file
from streams.models.manifest import ModelTag, Waveform
from streams.processes.deaths import DEADLY, DEATHS
from tests.contract.speech import spoken
from tests.process import ServiceProcess
from tests.recovery.load import Client, Stream
from tests.recovery.truth import expected_events
from tests.stub_engines import SPEECH, StubEngines
from tests.unit.streams.models import models
from tests.waiting import wait_for

RATE = 16_000
#: Full scale throughout, which crashes the model.
POISON = np.full(2 * RATE, 2**15 - 1, "<i2").tobytes()

#: More deaths than a job may cause itself.
KILLS = DEATHS + 2

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def _model(directory: Path) -> Path:
    """Write a model that scores a second by its highest sample, and divides -2^63 by -1 if all are at full scale."""
    constants = {"one": 1.0, "thousand": 1000.0, "nothing": 0.0}
    values = [numpy_helper.from_array(np.array([value], np.float32), name) for name, value in constants.items()]
    nodes = [
        helper.make_node("ReduceMin", ["patch"], ["low"], axes=[1]),
        helper.make_node("Sub", ["one", "low"], ["gap"]),
        helper.make_node("Mul", ["gap", "thousand"], ["wide"]),
        helper.make_node("Floor", ["wide"], ["floor"]),
        helper.make_node("Sub", ["floor", "one"], ["below"]),
        helper.make_node("Cast", ["below"], ["divisor"], to=TensorProto.INT64),
        helper.make_node("Div", ["lowest", "divisor"], ["quotient"]),
        helper.make_node("Cast", ["quotient"], ["any"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["any", "nothing"], ["zero"]),
        helper.make_node("ReduceMax", ["patch"], ["high"], axes=[1]),
        helper.make_node("Add", ["high", "zero"], ["sum"]),
        helper.make_node("Clip", ["sum", "nothing_at_all", "all"], ["scores"]),
    ]
    values += [
        numpy_helper.from_array(np.array([-(2**63)], np.int64), "lowest"),
        numpy_helper.from_array(np.array(0.0, np.float32), "nothing_at_all"),
        numpy_helper.from_array(np.array(1.0, np.float32), "all"),
    ]
    ends = [
        helper.make_tensor_value_info("patch", TensorProto.FLOAT, ("n", RATE)),
        helper.make_tensor_value_info("scores", TensorProto.FLOAT, ("n", 1)),
    ]
    graph = helper.make_graph(nodes, "deadly", ends[:1], ends[1:], values)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    manifest = msgspec.structs.replace(
        models.MANIFEST,
        name="deadly",
        input=Waveform(sample_rate=RATE, samples=RATE),
        classes=("loud",),
        tags=(ModelTag("Loud", "Test", (0,), 0.5),),
    )
    directory.mkdir()
    return models.write(directory, manifest, onnx.ModelProto.SerializeToString(model))


async def _poison_session(service: ServiceProcess) -> str:
    async with Client(service) as client:
        body = {"type": "stream", "content_type": f"audio/x-raw; rate={RATE}; format=s16le"}
        answer = await client.ask("POST", "/audio_sessions/", json=body, headers={"X-Api-Key": service.key})
        session = str(answer.json()["session_id"])
        chunk = {"data": base64.b64encode(POISON).decode()}
        assert (await client.http.put(f"/audio_sessions/{session}/chunks/0", json=chunk)).is_success
    return f"/audio_sessions/{session}/status"


async def _poison_job(service: ServiceProcess) -> str:
    async with Client(service) as client:
        return f"/api/v1/jobs/{await client.job(wav_file(POISON, RATE), {'sound_event_detection': True})}"


async def _chunks(client: Client, stream: Stream, seed: int) -> None:
    for _ in range(4):
        await client.put(stream, seed)


def _failed(service: ServiceProcess, place: str, sentence: str) -> bool:
    """Return whether the audio has failed; the service must live, whatever its workers do."""
    assert service.process is not None
    assert service.process.poll() is None, service.tail()
    return sentence in httpx2.get(service.url + place, headers={"X-Api-Key": service.key}, timeout=30).text


def _deaths(service: ServiceProcess) -> int:
    metrics = httpx2.get(f"{service.url}/metrics", timeout=30).text
    (line,) = (line for line in metrics.splitlines() if line.startswith("earshot_worker_deaths_total "))
    return round(float(line.split()[1]))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="no trap for an integer overflow on this processor")
@pytest.mark.parametrize("poison", [_poison_session, _poison_job])
async def test_audio_that_kills_workers_fails_alone(tmp_path: Path, poison: Any) -> None:
    data = tmp_path / "data"
    added = Registry(data).add(_model(tmp_path / "deadly"))
    with ServiceProcess(data, model=added.model_id) as service:
        async with Client(service) as client:
            # Their last chunks are probably not analysed yet when a worker dies.
            streams = [await client.open() for _ in range(4)]
            await asyncio.gather(*(_chunks(client, stream, seed) for seed, stream in enumerate(streams)))
        place = await poison(service)
        wait_for(partial(_failed, service, place, DEADLY), 120)
        assert _deaths(service) == DEATHS
        async with Client(service) as client:
            for seed, stream in enumerate(streams):
                await client.put(stream, seed)
                await client.seal(stream)
                assert await client.events(stream.session) == expected_events(stream.chunks, added.directory)


def _asked(engines: StubEngines, times: int) -> bool:
    return engines.calls[SPEECH] >= times


async def test_long_job_survives_repeated_kills(tmp_path: Path) -> None:
    """Its engine takes longer than the process lives, until the test releases it."""
    with StubEngines() as engines, ServiceProcess(tmp_path / "data", model="sed-mini", **engines.settings) as service:
        engines.faults[SPEECH] = "hang"
        async with Client(service) as client:
            job = await client.job(spoken(2), {"speech_analysis": True})
        for killed in range(KILLS):
            wait_for(partial(_asked, engines, killed + 1), 120)
            service.kill()
            if killed == KILLS - 1:
                engines.heal()
            service.start()
        async with Client(service) as client, asyncio.timeout(120):
            result = await client.result(job)
        assert result["speech_analysis"]["status"] == "success", result
