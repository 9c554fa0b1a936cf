"""What traces cost: windows with one in a hundred traces sampled, over the same without traces."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final
from unittest import mock

from benchmarks import processes
from benchmarks.cases import windows
from benchmarks.cases.setup import Setup, Variant, running_service
from benchmarks.measures import Row, ratio_row
from benchmarks.plans import LivePlan
from tests.collector import collecting

SAMPLED: Final = {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.01"}
#: Windows for each second of the processor, over those without traces.
BARS: Final = {Variant("yamnet", "embedded"): 0.99, Variant("sed_mini", "embedded"): 0.99}


def measure(setup: Setup) -> Iterator[Row]:
    for variant, bar in BARS.items():
        chunks = setup.size(windows.CHUNKS[variant.model])
        with ExitStack() as stack:
            collector = stack.enter_context(collecting())
            with mock.patch.dict(os.environ, {**SAMPLED, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}):
                traced, _ = stack.enter_context(running_service(variant.log, **variant.settings))
            plain, _ = stack.enter_context(running_service(variant.log, **variant.settings))
            plans = [LivePlan(server.target(), windows.STREAMS, chunks) for server in (traced, plain)]
            pairs = processes.alternate_loads(plans, setup.pairs)
        row = ratio_row(f"traces, 1 % sampled, {variant}", pairs, "windows", bar, "plain")
        row.beside["spans"] = len(collector.spans)
        yield row
