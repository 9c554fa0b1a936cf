"""A collector of traces that keeps the spans it gets, by OTLP over HTTP."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue


class Received(msgspec.Struct):
    """A span as a collector got it; ids are in hex."""

    name: str
    trace: str
    id: str
    parent: str
    #: Trace and span of each link.
    links: list[tuple[str, str]]
    attributes: dict[str, object]
    #: Of the process that sent it.
    resource: dict[str, object]

    @property
    def node(self) -> object:
        return self.resource["service.instance.id"]


class Collector:
    """Keeps spans. Any thread."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.spans: list[Received] = []
        #: Everything that came, for a search.
        self.bytes = b""
        #: Returns the status of the next answer.
        self.status: Callable[[], int] = lambda: 200
        self.environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": self.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}

    def take(self, body: bytes) -> None:
        self.bytes += body
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = _values(group.resource.attributes)
            self.spans += [
                Received(
                    span.name,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    [(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
                    _values(span.attributes),
                    resource,
                )
                for scope in group.scope_spans
                for span in scope.spans
            ]

    def named(self, name: str, **attributes: object) -> list[Received]:
        """Return the spans of a name with such attributes; underscores stand for points."""
        wanted = {name.replace("_", "."): value for name, value in attributes.items()}
        return [one for one in self.spans if one.name == name and wanted.items() <= one.attributes.items()]


def _values(pairs: Iterable[KeyValue]) -> dict[str, object]:
    return {pair.key: getattr(pair.value, str(pair.value.WhichOneof("value"))) for pair in pairs}


@contextmanager
def collecting() -> Iterator[Collector]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body, status = self.rfile.read(int(self.headers["content-length"])), collector.status()
            if status == 200:
                collector.take(body)
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *arguments: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        collector = Collector(server.server_port)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield collector
        server.shutdown()
