"""Whether traces are sent, and a collector that is away."""

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from structlog.testing import capture_logs

from infra.service.span_exporter import PatientExporter
from infra.service.spans import Spans
from infra.service.traces import sent_traces, wanted
from infra.settings import Settings
from tests.collector import collecting
from topics import traces

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data=tmp_path)


@pytest.mark.parametrize(
    ("environ", "on"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "ears", "OTEL_TRACES_SAMPLER": "always_on"}, False),
        (ENDPOINT, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, False),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        (ENDPOINT | {"OTEL_TRACES_EXPORTER": "none"}, False),
        (ENDPOINT | {"OTEL_SDK_DISABLED": "TRUE"}, False),
        (ENDPOINT | {"OTEL_SDK_DISABLED": "false"}, True),
        (ENDPOINT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, True),
        (
            ENDPOINT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"},
            True,
        ),
    ],
)
def test_traces_are_on_where_a_collector_is_named(environ: Mapping[str, str], on: bool) -> None:
    assert wanted(environ) is on


@pytest.mark.parametrize(
    ("environ", "reason"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER is zipkin, and only otlp is supported"),
        (
            ENDPOINT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "OTEL_EXPORTER_OTLP_PROTOCOL is grpc, and only http/protobuf is supported",
        ),
        (ENDPOINT | {"OTEL_BSP_MAX_QUEUE_SIZE": "-1"}, "max_queue_size must be a positive integer"),
    ],
)
async def test_what_is_not_supported_is_one_line_and_the_service_goes_on(
    environ: Mapping[str, str], reason: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with capture_logs() as lines:
        async with sent_traces(settings):
            assert traces.tracer is None
    (line,) = lines
    assert (line["event"], line["log_level"]) == ("traces.off", "warning")
    assert line["reason"].startswith(reason)


async def test_missing_extra_is_one_line(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENDPOINT.items():
        monkeypatch.setenv(name, value)
    for module in [name for name in sys.modules if name.startswith(("opentelemetry", "infra.service.span"))]:
        monkeypatch.delitem(sys.modules, module)

    class Missing:
        @staticmethod
        def find_spec(name: str, *rest: Any) -> None:
            if name.startswith("opentelemetry"):
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(sys, "meta_path", [Missing, *sys.meta_path])
    with capture_logs() as lines:
        async with sent_traces(settings):
            assert traces.tracer is None
    (line,) = lines
    assert line["reason"].startswith("this needs the package opentelemetry, which comes with the extra traces")


def test_nothing_is_loaded_while_traces_are_off() -> None:
    code = (
        "import sys, infra.service.service, infra.service.jobs; "
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def note(count: int = 1) -> None:
    """Make spans as jobs that are done do."""
    for number in range(count):
        assert traces.tracer is not None
        traces.tracer.completed(str(number).rjust(24, "J"), 1, 2, 0)


async def test_operator_names_the_service_and_chooses_what_is_sampled(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collecting() as collector:
        given = {
            **collector.environment,
            "OTEL_SERVICE_NAME": "ears",
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=barn,service.instance.id=7",
            "OTEL_TRACES_SAMPLER": "traceidratio",
            "OTEL_TRACES_SAMPLER_ARG": "0.5",
        }
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        with capture_logs() as lines:
            async with sent_traces(settings):
                note(100)
        # What was left went out at the end.
        assert 20 < len(collector.named("job")) < 80
    resource = collector.spans[0].resource
    assert (resource["service.name"], resource["service.instance.id"]) == ("ears", "7")
    assert resource["deployment.environment.name"] == "barn"
    assert [(line["event"], line.get("sampler")) for line in lines] == [("traces.on", "TraceIdRatioBased{0.5}")]


def test_collector_that_is_away_is_one_line_and_one_when_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = InMemorySpanExporter()
    Spans("node", "kafka", SimpleSpanProcessor(memory)).completed("J" * 24, 1, 2, 0)
    with collecting() as collector:
        for name, value in collector.environment.items():
            monkeypatch.setenv(name, value)
        exporter = PatientExporter()
        answers = [500, 500, 200, 200]
        monkeypatch.setattr(collector, "status", lambda: answers.pop(0))
        with capture_logs() as lines:
            for _ in range(4):
                exporter.export(memory.get_finished_spans())
        exporter.shutdown()
    assert [line["event"] for line in lines] == ["traces.away", "traces.back"]
    assert ("500" in lines[0]["reason"], lines[1]["lost"]) == (True, 2)


async def test_collector_that_hangs_delays_the_end_by_a_second(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spans wait in a queue of a fixed size, for one thread."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{deaf.getsockname()[1]}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "2")  # for each of four batches
        before = set(threading.enumerate())
        async with sent_traces(settings):
            note(3000)
            (sender,) = set(threading.enumerate()) - before
        assert sender.is_alive()
    # It draws from `random`, which Hypothesis watches in later tests.
    await asyncio.to_thread(sender.join)
