"""Whether traces are sent: by the environment variables of OpenTelemetry, which is loaded only then."""

import asyncio
import os
import socket
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import structlog

from infra.extras import how_to_install
from infra.settings import Settings
from infra.urls import Embedded
from topics import traces

log = structlog.get_logger("earshot")

#: Seconds that a service which stops gives the collector to take the last spans.
STOP_SECONDS: Final = 1.0


def wanted(environ: Mapping[str, str]) -> bool:
    """Return whether an operator asks for traces.

    Raises:
        ValueError: in a way that is not supported.
    """
    named = {name: value.strip() for name, value in environ.items() if name.startswith("OTEL_")}
    exporter = named.get("OTEL_TRACES_EXPORTER", "")
    endpoints = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"
    if named.get("OTEL_SDK_DISABLED", "").lower() == "true" or exporter == "none":
        return False
    if not exporter and not any(named.get(name) for name in endpoints):
        return False
    if exporter not in ("", "otlp"):
        raise ValueError(f"OTEL_TRACES_EXPORTER is {exporter}, and only otlp is supported")
    for name in "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL":
        if protocol := named.get(name):
            if protocol != "http/protobuf":
                raise ValueError(f"{name} is {protocol}, and only http/protobuf is supported")
            break
    return True


@asynccontextmanager
async def sent_traces(settings: Settings) -> AsyncIterator[None]:
    """Send traces while the context is open, if an operator asks for them; one line says why that is impossible.

    Whatever can be traced must be made inside.
    """
    try:
        if not wanted(os.environ):
            yield
            return
        from infra.service.spans import Spans

        lane = f"/{settings.lane.number}" if settings.lane.count > 1 else ""
        node = (settings.advertise or socket.gethostname()) + lane
        spans = Spans(node, "earshot" if isinstance(settings.log, Embedded) else "kafka")
    except (ModuleNotFoundError, ValueError) as error:
        advice = how_to_install(error.name or "") if isinstance(error, ModuleNotFoundError) else None
        log.warning("traces.off", reason=advice or str(error))
        yield
        return
    traces.tracer = spans
    log.info("traces.on", sampler=spans.sampler.get_description())
    try:
        yield
    finally:
        traces.tracer = None
        # Not in a thread of the loop, whose end would wait for a collector that does not answer.
        stopping = threading.Thread(target=spans.stop, daemon=True)
        stopping.start()
        await asyncio.to_thread(stopping.join, STOP_SECONDS)
