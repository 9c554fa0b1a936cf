"""Spans by OpenTelemetry, with the names of its semantic conventions 1.44.

They tell ids as logs show them, routes, counts, durations and types of errors: never what clients sent, said or may
keep secret. That is why `url.path` and `url.full` are missing, and no exception has its message.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from hashlib import blake2b
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from opentelemetry.context import Context, attach, detach, get_current
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    format_trace_id,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import Attributes
from structlog.contextvars import bound_contextvars

from infra.service.span_exporter import PatientExporter
from topics.catalog import COMMANDS
from topics.keys import is_id, shown
from topics.traces import Endpoint, F

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

#: A trace, and the span in it that others link to.
Ids = tuple[int, int]

SCHEMA: Final = "https://opentelemetry.io/schemas/1.44.0"
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
#: What is shown of ids in paths.
_IDS: Final = {"session_id": "earshot.session.id", "job_id": "earshot.job.id"}
_W3C: Final = TraceContextTextMapPropagator()
_NOWHERE: Final = Context()
#: Current while a request is served whose trace is not sampled.
_UNSAMPLED: Final = NonRecordingSpan(SpanContext(1, 1, is_remote=False))
_IN_UNSAMPLED: Final = set_span_in_context(_UNSAMPLED, _NOWHERE)


def ids_of(kind: str, id: str, number: int | str = "") -> Ids:
    """Return the trace and the span of something by its id: alike on all nodes. Nobody finds the id from them."""
    digest = blake2b(f"{kind}/{id}/{number}".encode(), digest_size=24).digest()
    return int.from_bytes(digest[:16], "big"), int.from_bytes(digest[16:], "big")


def _reference(ids: Ids) -> SpanContext:
    """Return a span of a sampled trace, which another node may make."""
    return SpanContext(*ids, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))


class _ChosenIds(RandomIdGenerator):
    """Takes ids of the next span from whoever begins it, as far as they are chosen."""

    trace: int | None = None
    span: int | None = None

    def generate_trace_id(self) -> int:
        return self.trace or super().generate_trace_id()

    def generate_span_id(self) -> int:
        return self.span or super().generate_span_id()


class Spans:
    """Makes spans and sends them; implements `Tracer`. Loop only."""

    def __init__(self, node: str, log_system: str, processor: SpanProcessor | None = None) -> None:
        """Give spans of a node to a processor, or send them by the environment variables of OpenTelemetry.

        Raises:
            ValueError: one of them has a value that cannot be used.
        """
        own = {"service.name": "earshot", "service.version": metadata.version("earshot-server")}
        named = {**own, "service.instance.id": node, **OTELResourceDetector().detect().attributes}
        self._ids = _ChosenIds()
        self.provider = TracerProvider(
            resource=Resource.create(named, SCHEMA), id_generator=self._ids, shutdown_on_exit=False
        )
        self.sampler = self.provider.sampler
        root = getattr(self.sampler, "_root", self.sampler)
        # Nearly all requests are not sampled, and the sampler itself would make objects for each.
        self._bound = root.bound if isinstance(root, TraceIdRatioBased) else None
        self.provider.add_span_processor(processor or BatchSpanProcessor(PatientExporter()))
        self._tracer = self.provider.get_tracer("earshot", own["service.version"], SCHEMA)
        self._log_system = log_system

    def stop(self) -> None:
        """Send what is left, which may take long while the collector is away. Any thread."""
        self.provider.shutdown()

    # --- requests ---------------------------------------------------------------------------------------------------

    def serving(self, route: str, endpoint: Endpoint) -> Endpoint:
        return _Server(self, route, endpoint)

    def forwarding(self, ask: F) -> F:
        @wraps(ask)
        async def asked(url: str, request: Any, connect_seconds: float) -> Any:
            current = get_current_span()
            if current is _UNSAMPLED:
                # Otherwise the owner would decide anew.
                unsampled = f"00-{random.getrandbits(128):032x}-{random.getrandbits(64):016x}-00"
                return await ask(url, _with_headers(request, {"traceparent": unsampled}), connect_seconds)
            if not current.get_span_context().is_valid:
                return await ask(url, request, connect_seconds)
            node, headers = urlsplit(url), dict[str, str]()
            with _current(span := self._client(request.method, request.method, node.hostname, node.port)):
                _W3C.inject(headers)
                answer = await ask(url, _with_headers(request, headers), connect_seconds)
                _note_status(span, answer.status, 400)
                return answer

        return asked  # type: ignore[return-value]

    def sending(self, template: str, send: F) -> F:
        @wraps(send)
        async def sent(request: Any, **options: Any) -> Any:
            if not get_current_span().is_recording():
                return await send(request, **options)
            url = request.url
            span = self._client(f"{request.method} {template}", request.method, url.host, url.port)
            span.set_attribute("url.template", template)
            with _current(span):
                _W3C.inject(request.headers)
                answer = await send(request, **options)
                _note_status(span, answer.status_code, 400)
                return answer

        return sent  # type: ignore[return-value]

    def _client(self, name: str, method: str, host: str | None, port: int | None) -> Span:
        about: dict[str, str | int] = {"http.request.method": method, "server.address": host or ""}
        if port is not None:
            about["server.port"] = port
        return self.begin(name, about, SpanKind.CLIENT, get_current())

    # --- jobs -------------------------------------------------------------------------------------------------------

    def accepted(self, job: str) -> None:
        span = get_current_span()
        if span.is_recording() and self.samples((ids := ids_of("job", job))[0]):
            span.add_link(_reference(ids))
            span.set_attribute("earshot.job.id", shown(job))

    def completed(self, job: str, created: int, ended: int, failures: int) -> None:
        if self.samples((ids := ids_of("job", job))[0]):
            about: dict[str, str | int] = {"earshot.job.id": shown(job), "earshot.job.failures": failures}
            self.begin("job", about, trace=ids[0], span=ids[1], start=created * 1_000_000).end(ended * 1_000_000)

    def running(self, attempt: F) -> F:
        @wraps(attempt)
        async def traced(pending: Any) -> None:
            ids = ids_of("job", pending.job)
            if not self.samples(ids[0]):
                await attempt(pending)
                return
            about = {"earshot.job.id": shown(pending.job), "earshot.service": str(pending.service)}
            parent = set_span_in_context(NonRecordingSpan(_reference(ids)), _NOWHERE)
            with _current(self.begin(f"service {pending.service}", about, parent=parent)):
                await attempt(pending)

        return traced  # type: ignore[return-value]

    def failed(self, error: BaseException) -> None:
        _fail(get_current_span(), error)

    # --- windows ----------------------------------------------------------------------------------------------------

    def step(self, session: str, partition: int, chunks: Sequence[int], began: int) -> StepSpans | None:
        sampled = [(chunk, ids) for chunk in chunks if self.samples((ids := ids_of("chunk", session, chunk))[0])]
        if not sampled:
            return None
        about: dict[str, str | int] = {
            "messaging.system": self._log_system,
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": COMMANDS,
            "messaging.destination.partition.id": str(partition),
            "messaging.batch.message_count": len(chunks),
            "earshot.session.id": shown(session),
        }
        # Each chunk is in a trace of its own. The parts of the step are in the first one, which the others link to.
        links = [Link(_reference(sampled[0][1]))]
        spans = [
            self.begin(
                f"process {COMMANDS}",
                {**about, "earshot.chunk.sequence": chunk},
                SpanKind.CONSUMER,
                links=links[: index > 0],
                trace=trace,
                span=span,
                start=began,
            )
            for index, (chunk, (trace, span)) in enumerate(sampled)
        ]
        return StepSpans(self.begin, spans)

    # --- what spans are made of -------------------------------------------------------------------------------------

    def samples(self, trace: int) -> bool:
        """Return whether a trace that begins here is sampled. All nodes with the same settings answer alike."""
        if self._bound is not None:
            return trace & TraceIdRatioBased.TRACE_ID_LIMIT < self._bound
        return self.sampler.should_sample(_NOWHERE, trace, "").decision is Decision.RECORD_AND_SAMPLE

    def begin(
        self,
        name: str,
        about: Attributes,
        kind: SpanKind = SpanKind.INTERNAL,
        parent: Context = _NOWHERE,
        links: Sequence[Link] = (),
        trace: int | None = None,
        span: int | None = None,
        start: int | None = None,
    ) -> Span:
        """Begin a span; one without a parent gets the ids `trace` and `span`."""
        self._ids.trace, self._ids.span = trace, span
        return self._tracer.start_span(name, parent, kind, about, links, start)


class StepSpans:
    """The spans of one step, one for each sampled chunk. Loop only."""

    def __init__(self, start: Callable[..., Span], spans: list[Span]) -> None:
        self._start, self._spans = start, spans
        self._part: Span | None = None

    def begin(self, part: str) -> None:
        if self._part is not None:
            self._part.end()
        self._part = self._start(part, None, parent=set_span_in_context(self._spans[0], _NOWHERE))

    def end(self, windows: int = 0, error: BaseException | None = None) -> None:
        if error is None:
            for span in self._spans:
                span.set_attribute("earshot.windows", windows)
        for span in [*([] if self._part is None else [self._part]), *self._spans]:
            if error is not None:
                _fail(span, error)
            span.end()


class _Server:
    """The endpoint of a route, with a span for each request. Loop only."""

    def __init__(self, spans: Spans, route: str, endpoint: Endpoint) -> None:
        self._spans, self._route, self._endpoint = spans, route, endpoint
        self._takes_chunks = "{chunk_sequence}" in route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        parent, chunk = _parent(scope["headers"]), None
        if self._takes_chunks:
            # A request and the windows of its chunk are in one trace, unless the client has begun another.
            values = scope["path_params"]
            chunk = ids_of("chunk", values["session_id"], values["chunk_sequence"])
        trace = random.getrandbits(128) if chunk is None else chunk[0]
        is_sampled = self._spans.samples(trace)
        if not parent and not is_sampled:
            token = attach(_IN_UNSAMPLED)
            try:
                await self._endpoint(scope, receive, send)
            finally:
                detach(token)
            return
        links = [] if chunk is None or not is_sampled else [Link(_reference(chunk))]
        span = self._spans.begin(*self._named(scope), SpanKind.SERVER, parent, links, trace)

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                _note_status(span, message["status"], 500)
            await send(message)

        with _current(span):
            await self._endpoint(scope, receive, answer)

    def _named(self, scope: Scope) -> tuple[str, Attributes]:
        """Return the name and the first attributes of a request's span."""
        method = scope["method"] if scope["method"] in _METHODS else "_OTHER"
        about: dict[str, str] = {
            "http.request.method": method,
            "http.route": self._route,
            "url.scheme": scope.get("scheme", "http"),
        }
        for parameter, name in _IDS.items():
            if is_id(id := scope["path_params"].get(parameter, "")):
                about[name] = shown(id)
        return f"{'HTTP' if method == '_OTHER' else method} {self._route}", about


def _parent(headers: Iterable[tuple[bytes, bytes]]) -> Context:
    """Return the context that a client has sent; an empty one if it has sent none, or one that is malformed."""
    for name, _ in headers:
        if name == b"traceparent":
            return _W3C.extract({name.decode("latin-1"): value.decode("latin-1") for name, value in headers}, _NOWHERE)
    return _NOWHERE


@contextmanager
def _current(span: Span) -> Iterator[None]:
    """Make a span current, and name its trace in log lines; end it."""
    token = attach(set_span_in_context(span))
    try:
        with bound_contextvars(trace_id=format_trace_id(span.get_span_context().trace_id)):
            yield
    except BaseException as error:
        _fail(span, error)
        raise
    finally:
        detach(token)
        span.end()


def _note_status(span: Span, status: int, least_error: int) -> None:
    span.set_attribute("http.response.status_code", status)
    if status >= least_error:
        span.set_attribute("error.type", str(status))
        span.set_status(StatusCode.ERROR)


def _fail(span: Span, error: BaseException) -> None:
    span.set_attribute("error.type", type(error).__qualname__)
    span.set_status(StatusCode.ERROR)


def _with_headers(request: Any, headers: Mapping[str, str]) -> Any:
    """Return a request of the client of nodes with these headers in place of those of the same names."""
    new = [(name.encode(), value.encode()) for name, value in headers.items()]
    kept = [header for header in request.headers if header[0].decode() not in headers]
    return request._replace(headers=[*kept, *new])
