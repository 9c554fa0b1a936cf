"""Sends spans to a collector, which may be away: one line says that it is, and one that it is back."""

import logging
from collections.abc import Sequence
from typing import Final

import structlog
from opentelemetry.exporter.otlp.proto.http import trace_exporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

log = structlog.get_logger("earshot")

_LOGGER: Final = logging.getLogger(trace_exporter.__name__)


class PatientExporter(SpanExporter):
    """Sends batches of spans; those that a collector does not take in time are lost. Any one thread."""

    def __init__(self) -> None:
        """Send by the environment variables of OpenTelemetry.

        Raises:
            ValueError: one of them has a value that cannot be used.
        """
        self._inner = trace_exporter.OTLPSpanExporter()
        self._reason = ""
        self._lost = 0
        # It writes a line for each span that finds the queue full.
        logging.getLogger("opentelemetry.sdk._shared_internal").setLevel(logging.CRITICAL)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self._reason = ""
        # It writes lines about every batch.
        _LOGGER.addFilter(self._keep_reason)
        try:
            result = self._inner.export(spans)
        finally:
            _LOGGER.removeFilter(self._keep_reason)
        if result is SpanExportResult.SUCCESS:
            if self._lost:
                log.info("traces.back", lost=self._lost)
            self._lost = 0
        else:
            if not self._lost:
                log.warning("traces.away", reason=self._reason)
            self._lost += len(spans)
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()  # type: ignore[no-untyped-call]

    def _keep_reason(self, record: logging.LogRecord) -> bool:
        """Keep why the first attempt failed, without the path of a URL, where operators may have put a secret."""
        self._reason = self._reason or record.getMessage().partition(" with url")[0]
        return False
