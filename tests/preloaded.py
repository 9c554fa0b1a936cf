"""Prepares the process from which commands of `earshot` fork: imports everything and compiles the kernels."""

import gc
import importlib

from infra import cli
from streams.audio.warm import warm
from tests.unit.streams.audio.engines import Fingerprint

for name in (
    *(f"infra.cli.{module}" for module in cli.COMMANDS),
    *("infra.service.service", "infra.examples", "streams.embedded.embedded_backend", "streams.kafka.kafka_backend"),
    *("aiosqlite", "httpcore2", "uvloop"),
):
    importlib.import_module(name)
warm(Fingerprint())
gc.freeze()
